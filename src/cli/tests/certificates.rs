//! What `check` says of certificates that clients refuse, and the gateway serves with.

use super::*;

#[test]
fn check_warns_of_each_certificate_that_has_expired_and_passes() {
    let place = Place::with_free_ports();
    let expired = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/expired.pem");
    let files = format!("{{ cert: {expired:?}, key: {expired:?} }}\n");
    let conf = std::fs::read_to_string(place.conf()).unwrap();
    let conf = format!("{conf}tls: {files}operator_listen: 127.0.0.1:0\noperator_tls: {files}");
    std::fs::write(place.conf(), conf).unwrap();
    let (_, findings) = place.json("check");
    for key in ["tls", "operator_tls"] {
        let file = expired.display();
        let told = format!("{key}.cert: {file}: it expired at 2021-01-01T00:00:00Z, and clients refuse it");
        let warnings = findings["warnings"].as_array().unwrap();
        let count = warnings.iter().filter(|warning| **warning == told.as_str()).count();
        assert_eq!(count, 1, "{told}: {warnings:?}");
    }
}
