//! Redis over TLS, in each of its forms, with certificates of an authority of one's own.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use super::{patient, request};
use crate::ledger::redis::{Options, RedisLedger};
use crate::ledger::tests::redis_group::Sentinel;
use crate::ledger::tests::redis_server::{RedisServer, free_port, until};
use crate::ledger::tests::rig::{block_on, caller_of, credits, debit};
use crate::ledger::{Ledger, StoreError};
use crate::pure::limits::LimitOverrides;

/// An authority and a certificate for this machine, in a folder.
struct Certificates {
    folder: tempfile::TempDir,
    authority: String,
}

impl Certificates {
    fn new() -> Certificates {
        let (key, own_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = params.self_signed(&key).unwrap().pem();
        let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let own = own.signed_by(&own_key, &Issuer::new(params, key)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("ca.pem", authority.clone()),
            ("own.pem", own.pem()),
            ("own.key", own_key.serialize_pem()),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Certificates { folder, authority }
    }

    /// What redis-server is told: its names and values.
    fn settings(&self, port: u16) -> Vec<(String, String)> {
        let file = |name: &str| Path::join(self.folder.path(), name).display().to_string();
        let settings = [
            ("tls-port", port.to_string()),
            ("tls-cert-file", file("own.pem")),
            ("tls-key-file", file("own.key")),
            ("tls-ca-cert-file", file("ca.pem")),
            ("tls-auth-clients", "no".to_owned()),
            ("tls-replication", "yes".to_owned()),
        ];
        settings.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }

    /// A server, and its port over TLS.
    fn server(&self, more: &[&str]) -> (RedisServer, u16) {
        let port = free_port();
        let settings = self.settings(port);
        let words = settings
            .iter()
            .flat_map(|(name, value)| [format!("--{name}"), value.clone()]);
        let words: Vec<String> = words.collect();
        let words: Vec<&str> = words.iter().map(String::as_str).chain(more.iter().copied()).collect();
        (RedisServer::start_with(&words), port)
    }

    /// A ledger at this address, which trusts the authority.
    fn connect(&self, url: &str) -> Result<Ledger, StoreError> {
        let options = Options {
            ca: Some(self.authority.clone().into_bytes()),
            ..patient()
        };
        RedisLedger::connect(url, options).map(Ledger::Redis)
    }

    /// A call is held and billed at this address; whoever does not trust the authority is not served.
    fn serve(&self, url: &str) {
        let ledger = self.connect(url).unwrap();
        let caller = caller_of(&ledger, "acme", "10", LimitOverrides::default());
        let hold = block_on(caller.reserve(&request(1, "2"))).unwrap().unwrap();
        hold.settle(debit("1"));
        assert_eq!(block_on(caller.figures()).unwrap().balance, credits("9"));
        let error = RedisLedger::connect(url, patient()).unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
    }
}

#[test]
fn one_server_is_reached() {
    let certificates = Certificates::new();
    let (_server, port) = certificates.server(&[]);
    certificates.serve(&format!("rediss://127.0.0.1:{port}"));
}

#[test]
fn a_cluster_is_reached() {
    let certificates = Certificates::new();
    let bus = free_port().to_string();
    let (server, port) = certificates.server(&[
        "--cluster-enabled",
        "yes",
        "--tls-cluster",
        "yes",
        "--cluster-port",
        &bus,
    ]);
    assert_eq!(server.ask("CLUSTER ADDSLOTSRANGE 0 16383"), ["+OK"]);
    until("the cluster serves", || {
        server.ask("CLUSTER INFO").contains(&"cluster_state:ok".to_owned())
    });
    certificates.serve(&format!("rediss+cluster://127.0.0.1:{port}"));
}

#[test]
fn a_master_that_a_sentinel_names_is_reached() {
    let certificates = Certificates::new();
    let (server, master) = certificates.server(&[]);
    let port = free_port();
    let settings = certificates.settings(port);
    let lines: String = settings
        .iter()
        .map(|(name, value)| format!("{name} {value}\n"))
        .collect();
    let _sentinel = Sentinel::start(master, &lines);
    certificates.serve(&format!("rediss+sentinel://127.0.0.1:{port}/mymaster"));
    // As a user of the master; the Sentinel knows none.
    let user = "ACL SETUSER gateway on >s3cret ~tg1:* &tg1:* +@all";
    assert_eq!(server.ask(user), ["+OK"]);
    let connect = |login: &str| certificates.connect(&format!("rediss+sentinel://{login}@127.0.0.1:{port}/mymaster"));
    assert!(connect("gateway:s3cret").is_ok());
    assert!(connect("other:s3cret").is_err());
}
