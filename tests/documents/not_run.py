"""Blocks that cannot run in a test, each with the reason: (document, first line of the block). Their syntax and their flags are checked."""

COMPILES = "it compiles, or runs suites that do, for minutes"
MEASURES = "it measures for minutes, on a machine that must do nothing else"
INSTALLS = "it installs into the system"
NETWORK = "it needs a network"

NOT_RUN = {
    ("conf/README.md", "tollgate serve"): "it runs until it is stopped, on ports that may be taken; tests/it starts it in many ways",
    ("conf/README.md", "curl -s https://openrouter.ai/api/v1/models > models.json"): NETWORK,
    ("conf/README.md", "TOLLGATE_OPERATOR_TOKEN=tgop_… tollgate account show acme --operator https://ops.example.com:9091"): NETWORK,
    ("conf/README.md", "install -m 755 target/release/tollgate /usr/local/bin/"): INSTALLS,
    ("conf/README.md", "systemctl daemon-reload && systemctl enable --now tollgate"): INSTALLS,
    ("conf/README.md", "docker build -f conf/docker/Dockerfile -t tollgate ."): NETWORK,
    (
        "conf/README.md",
        "docker compose -f conf/docker/compose.yaml cp tollgate:/etc/tollgate/tollgate.yaml .     # of docker run: docker cp CONTAINER:/etc/…",
    ): NETWORK,
    ("conf/README.md", "docker compose -f conf/docker/compose.yaml run --rm -T --no-deps --entrypoint sh tollgate \\"): NETWORK,
    ("bench/README.md", "cargo bench --bench load -- soak --subjects embedded,redis --soak-seconds 3600"): MEASURES,
    ("bench/README.md", "cargo bench --bench load -- whole --against http://gateway.example.com:8080/api/v1 --key $TOLLGATE_KEY --model openai/gpt-4o-mini"): NETWORK,
    ("tests/README.md", "tests/run"): COMPILES,
    ("tests/README.md", "tests/run rust                  # one part; several are possible"): COMPILES,
    ("tests/README.md", "tests/run nightly               # all of them: hours. The summary at the end has seconds, result and figures of each"): COMPILES,
    ("tests/README.md", "tests/mutants/run target/mutants-of-today --sample 100 --seed 7 meter     # a hundred of them, and the interval that their share leaves"): COMPILES,
    (".github/CONTRIBUTING.md", "cargo build"): COMPILES,
}
