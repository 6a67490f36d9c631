//! What is wrong in each case, where it is to be seen, and part of what is said.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use super::{At, Case, case};
use crate::harness::redis_server::free_port;
use crate::harness::tls::Authority;

/// The configuration's text alone.
pub(super) const WRONG_TEXT: [Case; 13] = [
    case(
        "no configuration",
        At::Nowhere,
        "there is no configuration at",
        |place| {
            place.conf.clear();
        },
    ),
    case(
        "a folder for the configuration",
        At::File("tollgate.yaml"),
        "Is a directory",
        |place| {
            place.conf.clear();
            fs::create_dir(place.path("tollgate.yaml")).unwrap();
        },
    ),
    case("not YAML", At::Conf("data_dir"), "data_dir: ", |place| {
        place.set("data_dir", "[")
    }),
    case("an unknown key", At::Conf("listne"), "did you mean listen?", |place| {
        place.rename("listen", "listne")
    }),
    case(
        "a key twice",
        At::Conf("markup: 2"),
        "the key markup stands there twice",
        |place| {
            place.conf += "markup: 1.15\nmarkup: 2\n";
        },
    ),
    case("an address that is none", At::Conf("listen"), "listen: ", |place| {
        place.set("listen", "everywhere")
    }),
    case(
        "a name for an address",
        At::Conf("admin_listen"),
        "admin_listen: ",
        |place| {
            place.set("admin_listen", "localhost:9090");
        },
    ),
    case("a markup below zero", At::Conf("markup"), "markup", |place| {
        place.conf += "markup: -1\n"
    }),
    case("a store of another kind", At::Conf("store"), "store: ", |place| {
        place.set("store", "mysql://127.0.0.1/a")
    }),
    case("a provider without an address", At::Conf("main"), "base_url", |place| {
        place.conf = place.conf.replace("base_url:", "api_key_env:");
    }),
    case("a provider that is no URL", At::Conf("base_url"), "base_url", |place| {
        place.conf = place.conf.replace("http://127.0.0.1:9/v1", "nowhere");
    }),
    case("a tier that is none", At::Conf("gold"), "gold", |place| {
        place.conf += "tiers:\n  gold: { rpm: 5 }\n"
    }),
    case(
        "a number in words",
        At::Conf("drain_seconds"),
        "drain_seconds",
        |place| {
            place.conf += "drain_seconds: soon\n";
        },
    ),
];

/// The catalogue's.
pub(super) const WRONG_CATALOGUE: [Case; 6] = [
    case("no catalogue", At::File("catalogue.yaml"), "No such file", |place| {
        place.catalogue.clear()
    }),
    case(
        "a catalogue without models",
        At::Catalogue("models"),
        "models",
        |place| {
            place.catalogue = "models: []\n".to_owned();
        },
    ),
    case(
        "an unknown provider",
        At::Catalogue("provider: main"),
        "which is not configured",
        |place| {
            place.rename("main", "other");
        },
    ),
    case("a price that is none", At::Catalogue("pricing"), "prompt", |place| {
        place.catalogue = place.catalogue.replace("\"0.00000015\"", "\"cheap\"");
    }),
    case("a price below zero", At::Catalogue("pricing"), "prompt", |place| {
        place.catalogue = place.catalogue.replace("\"0.00000015\"", "\"-0.00000015\"");
    }),
    case("a model twice", At::Catalogue("# again"), "acme/small", |place| {
        place.catalogue = place.catalogue.replace("- id: acme/other", "- id: acme/small # again");
    }),
];

/// Files and folders.
pub(super) const WRONG_FILES: [Case; 12] = [
    case("no certificate", At::Conf("cert"), "cert.pem: ", |place| {
        place.conf += &format!("tls:\n  cert: {0}/cert.pem\n  key: {0}/key.pem\n", place.root());
    }),
    case("a certificate without its key", At::Conf("key"), "key.pem: ", |place| {
        let (certificate, _) = Authority::new().pem_of("localhost");
        fs::write(place.path("cert.pem"), certificate).unwrap();
        fs::write(place.path("key.pem"), "no key").unwrap();
        place.conf += &format!("tls:\n  cert: {0}/cert.pem\n  key: {0}/key.pem\n", place.root());
    }),
    case(
        "a data_dir that is a file",
        At::Conf("data_dir"),
        "Not a directory",
        |place| {
            fs::write(place.path("data"), "").unwrap();
        },
    ),
    case(
        "a data_dir below a file",
        At::Conf("data_dir"),
        "Not a directory",
        |place| {
            place.set_path("data_dir", "catalogue.yaml/data");
        },
    ),
    case(
        "an access log that is a folder",
        At::Conf("access_log"),
        "Is a directory",
        |place| {
            place.set_path("access_log", "log");
            fs::create_dir(place.path("log")).unwrap();
        },
    ),
    case(
        "an access log in no folder",
        At::Conf("access_log"),
        "No such file or directory (os error 2); make the folder ",
        |place| {
            place.set_path("access_log", "logs/access");
        },
    ),
    case(
        "an access log beside the data_dir",
        At::Conf("access_log"),
        "No such file or directory (os error 2); make the folder ",
        |place| {
            place.set_path("access_log", "data/../logs/access");
        },
    ),
    case(
        "an access log below a file in the data_dir",
        At::Conf("access_log"),
        "Not a directory",
        |place| {
            fs::create_dir(place.path("data")).unwrap();
            fs::write(place.path("data/logs"), "").unwrap();
            place.set_path("access_log", "data/logs/access");
        },
    ),
    case("receipts below a file", At::Conf("files"), "Not a directory", |place| {
        place.conf += &format!("receipts:\n  files: {}/catalogue.yaml/receipts\n", place.root());
    }),
    case(
        "a ledger that is a folder",
        At::Conf("store"),
        "Is a directory",
        |place| {
            fs::create_dir(place.path("ledger.db")).unwrap();
        },
    ),
    case(
        "a ledger that is another file",
        At::Conf("store"),
        "is not a database",
        |place| {
            fs::write(place.path("ledger.db"), "once upon a time ".repeat(20)).unwrap();
        },
    ),
    case(
        "a ledger of a newer version",
        At::Conf("store"),
        "has schema version 7",
        |place| {
            let ledger = rusqlite::Connection::open(place.path("ledger.db")).unwrap();
            ledger
                .execute_batch("CREATE TABLE t (a); PRAGMA user_version = 7")
                .unwrap();
        },
    ),
];

/// Ports, owners and servers.
pub(super) const WRONG_SURROUNDINGS: [Case; 14] = [
    case(
        "a folder of a gateway with another ledger",
        At::Conf("data_dir"),
        "a gateway with another ledger runs with",
        |place| {
            let folder = place.path("data");
            std::fs::create_dir(&folder).unwrap();
            place
                .held
                .push(Box::new(UnixListener::bind(folder.join("upgrade.sock")).unwrap()));
        },
    ),
    case(
        "a port that is taken",
        At::Conf("listen"),
        "Address already in use",
        |place| {
            let port = TcpListener::bind("127.0.0.1:0").unwrap();
            place.set("listen", &port.local_addr().unwrap().to_string());
            place.held.push(Box::new(port));
        },
    ),
    case(
        "an admin port that is taken",
        At::Conf("admin_listen"),
        "Address already in use",
        |place| {
            let port = TcpListener::bind("127.0.0.1:0").unwrap();
            place.set("admin_listen", &port.local_addr().unwrap().to_string());
            place.held.push(Box::new(port));
        },
    ),
    case(
        "an operators' port that is taken",
        At::Conf("operator_listen"),
        "Address already in use",
        |place| {
            let port = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = port.local_addr().unwrap();
            place.conf.push_str(&format!("operator_listen: {address}\n"));
            place.held.push(Box::new(port));
        },
    ),
    case(
        "an address of another machine",
        At::Conf("listen"),
        "Cannot assign requested address",
        |place| {
            place.set("listen", "192.0.2.1:8080");
        },
    ),
    case(
        "a ledger that another process owns",
        At::Conf("store"),
        "another process owns",
        |place| {
            let lock = fs::File::create(place.path("ledger.lock")).unwrap();
            lock.lock().unwrap();
            place.held.push(Box::new(lock));
        },
    ),
    case("no Redis", At::Conf("store"), "Connection refused", |place| {
        place.set("store", &format!("redis://127.0.0.1:{}", free_port()));
    }),
    case("a Redis that says nothing", At::Conf("store"), "timed out", |place| {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        place.set("store", &format!("redis://{}", port.local_addr().unwrap()));
        place.held.push(Box::new(port));
    }),
    case(
        "a Redis that evicts keys",
        At::Conf("store"),
        "set maxmemory-policy noeviction",
        |place| {
            place.redis(&["CONFIG SET maxmemory 100mb", "CONFIG SET maxmemory-policy allkeys-lru"]);
        },
    ),
    case("a Redis with a password", At::Conf("store"), "NOAUTH", |place| {
        place.redis(&["CONFIG SET requirepass secret"]);
    }),
    case("a Redis that is no cluster", At::Conf("store"), "cluster", |place| {
        place.redis(&[]);
        place.conf = place.conf.replace("store: redis://", "store: redis+cluster://");
    }),
    case(
        "a Redis on a machine that there is not",
        At::Conf("store"),
        "nobody.invalid",
        |place| {
            place.set("store", "redis://nobody.invalid:6379");
        },
    ),
    case(
        "a ledger whose variable is not set",
        At::Conf("store_env"),
        "the environment variable LEDGER is not set, or empty",
        |place| {
            place.rename("store", "store_env");
            place.set("store_env", "LEDGER");
        },
    ),
    case(
        "a Redis of a variable that does not run",
        At::Conf("store_env"),
        "Connection refused",
        |place| {
            place.environment.push(("LEDGER", "redis://:secret@127.0.0.1:1/0"));
            place.rename("store", "store_env");
            place.set("store_env", "LEDGER");
        },
    ),
];
