//! What an error of a connection says in a log: kinds, sources and reasons, and never what the peer sent.
//!
//! Pingora puts the bytes that it could not read into the error, and HTTP/2 the peer's own words: they may be long, and a prompt or a completion.

use std::fmt;

use pingora::{Error, ErrorType, ImmutStr};

/// An error of a connection, to be logged.
pub(crate) struct ErrorText<'a>(pub(crate) &'a Error);

impl fmt::Display for ErrorText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.0;
        write!(f, "{} {}", error.esource().as_str(), error.etype().as_str())?;
        match &error.context {
            None => {}
            Some(ImmutStr::Static(context)) => write!(f, " context: {context}")?,
            Some(ImmutStr::Owned(context)) if is_of_connecting(error.etype()) => write!(f, " context: {context}")?,
            Some(ImmutStr::Owned(context)) => write!(f, " ({} bytes that are not shown)", context.len())?,
        }
        match error.cause.as_deref() {
            None => Ok(()),
            Some(cause) => match cause.downcast_ref::<Box<Error>>() {
                Some(cause) => write!(f, " cause: {}", ErrorText(cause)),
                None if is_http2(error.etype()) || cause.is::<h2::Error>() => {
                    write!(f, " cause: {}", http2_reason(cause))
                }
                None => write!(f, " cause: {cause}"),
            },
        }
    }
}

/// What an error of a connection over HTTP/2 says in a log: its own reason, without the peer's words, which stand behind it.
pub(crate) fn http2_reason(error: &(impl fmt::Display + ?Sized)) -> String {
    let text = error.to_string();
    text.split(" (").next().unwrap_or_default().to_owned()
}

fn is_http2(kind: &ErrorType) -> bool {
    matches!(kind, ErrorType::H2Error | ErrorType::H2Downgrade | ErrorType::InvalidH2)
}

/// Whether the context was made before the peer said anything in HTTP: it has the address then.
fn is_of_connecting(kind: &ErrorType) -> bool {
    matches!(
        kind,
        ErrorType::ConnectTimedout
            | ErrorType::ConnectRefused
            | ErrorType::ConnectNoRoute
            | ErrorType::ConnectError
            | ErrorType::BindError
            | ErrorType::AcceptError
            | ErrorType::SocketError
            | ErrorType::TLSWantX509Lookup
            | ErrorType::TLSHandshakeFailure
            | ErrorType::TLSHandshakeTimedout
            | ErrorType::InvalidCert
            | ErrorType::HandshakeError
    )
}

#[cfg(test)]
mod tests {
    use pingora::OrErr;

    use super::*;

    #[test]
    fn what_a_peer_sent_is_not_shown_and_where_it_is_and_why_it_failed_are() {
        let io = || std::io::Error::from_raw_os_error(111);
        let connect = Err::<(), _>(io())
            .or_err_with(ErrorType::ConnectRefused, || {
                "Fail to connect to 127.0.0.1:9".to_owned()
            })
            .unwrap_err();
        let text = ErrorText(&connect).to_string();
        assert!(
            text.contains("ConnectRefused context: Fail to connect to 127.0.0.1:9 cause: Connection refused"),
            "{text}"
        );

        // As h2 writes a GOAWAY with debug data.
        let ended = "connection error received: not a result of an error (b\"a secret (completion)\")";
        assert_eq!(
            http2_reason(ended),
            "connection error received: not a result of an error"
        );

        let unreadable = Error::because(
            ErrorType::InvalidHTTPHeader,
            "buf: a secret completion".to_owned(),
            io(),
        );
        let outer = Error::because(ErrorType::ReadError, "while reading a head", unreadable.into_up());
        let text = ErrorText(&outer).to_string();
        assert!(!text.contains("secret"), "{text}");
        assert!(
            text.contains("ReadError context: while reading a head cause: Upstream InvalidHTTPHeader (24 bytes that are not shown)"),
            "{text}"
        );
    }
}
