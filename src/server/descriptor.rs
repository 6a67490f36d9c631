//! A message with a file descriptor, over a Unix socket: how a listening socket goes to another process.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

/// Sends a text, and a copy of the descriptor with it.
///
/// # Errors
/// When the other side takes nothing.
pub(crate) fn send(to: &UnixStream, text: &[u8], descriptor: BorrowedFd<'_>) -> Result<()> {
    let mut piece = libc::iovec {
        iov_base: text.as_ptr().cast_mut().cast(),
        iov_len: text.len(),
    };
    let mut control = [0u64; CONTROL_WORDS];
    let mut message = message(&mut piece, &mut control);
    message.msg_controllen = control_bytes();
    // SAFETY: `message` names `control`, which has room for one header with one descriptor behind it, and both live until the end.
    let sent = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = usize::try_from(libc::CMSG_LEN(DESCRIPTOR_BYTES)).unwrap_or_default();
        std::ptr::write_unaligned(libc::CMSG_DATA(header).cast::<RawFd>(), descriptor.as_raw_fd());
        libc::sendmsg(to.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    match usize::try_from(sent) {
        Ok(length) if length == text.len() => Ok(()),
        Ok(_) => Err(Error::new(ErrorKind::WriteZero, "the message was cut")),
        Err(_) => Err(Error::last_os_error()),
    }
}

/// Receives a text of at most [`TEXT_BYTES_MAX`], and the descriptor that came with it, if one did.
///
/// # Errors
/// When nothing comes, or the other side has gone.
pub(crate) fn receive(from: &UnixStream) -> Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut text = vec![0; TEXT_BYTES_MAX];
    let mut piece = libc::iovec {
        iov_base: text.as_mut_ptr().cast(),
        iov_len: text.len(),
    };
    let mut control = [0u64; CONTROL_WORDS];
    let mut message = message(&mut piece, &mut control);
    // SAFETY: the call writes into the buffers that `message` names, which live until the end of this function.
    let received = unsafe { libc::recvmsg(from.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let length = usize::try_from(received).map_err(|_| Error::last_os_error())?;
    if length == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    text.truncate(length);
    // SAFETY: the kernel has written a header where `message` says, when it gives one, and a descriptor behind one of this kind and length,
    // which is nobody else's in this process.
    let descriptor = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let is_descriptor = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS
            && usize::try_from(libc::CMSG_LEN(DESCRIPTOR_BYTES)).is_ok_and(|length| (*header).cmsg_len == length);
        is_descriptor.then(|| {
            let number = std::ptr::read_unaligned(libc::CMSG_DATA(header).cast::<RawFd>());
            OwnedFd::from_raw_fd(number)
        })
    };
    Ok((text, descriptor))
}

fn message(piece: &mut libc::iovec, control: &mut [u64; CONTROL_WORDS]) -> libc::msghdr {
    // SAFETY: every pattern of bits is a `msghdr`, and zeros are an empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control_bytes();
    message
}

fn control_bytes() -> usize {
    // SAFETY: only computes.
    let bytes = unsafe { libc::CMSG_SPACE(DESCRIPTOR_BYTES) };
    usize::try_from(bytes).unwrap_or_default()
}

const DESCRIPTOR_BYTES: libc::c_uint = 4;
/// Room for one header and one descriptor, aligned as a header.
const CONTROL_WORDS: usize = 8;
/// The longest text of a message, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_descriptor_arrives_with_its_text_and_a_text_without_one() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut mine, passed) = UnixStream::pair().unwrap();
        send(&here, b"it\n", passed.as_fd()).unwrap();
        drop(passed);
        let (text, descriptor) = receive(&there).unwrap();
        assert_eq!(text, b"it\n");
        let mut descriptor = UnixStream::from(descriptor.unwrap());
        mine.write_all(b"x").unwrap();
        let mut read = [0];
        descriptor.read_exact(&mut read).unwrap();
        (&here).write_all(b"no\n").unwrap();
        let (text, descriptor) = receive(&there).unwrap();
        assert_eq!((text.as_slice(), descriptor.is_none()), (b"no\n".as_slice(), true));
        drop(here);
        assert_eq!(receive(&there).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
