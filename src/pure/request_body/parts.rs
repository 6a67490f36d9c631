//! The members of a message and the parts of its content: text, images, sounds, files, and what is none of these.

use super::pieces::{PartKind, Piece, found_control, found_value};
use super::priced::CACHE_CONTROL;
use super::scan::{Fault, Kind, Scanner, Text, Value};
use super::text;
use super::{controls, fold};

/// Reads the value of a message's member.
#[inline]
pub(super) fn walk_message_member(
    scan: &mut Scanner<'_>,
    bytes: &[u8],
    key: Text,
    found: &mut impl FnMut(Piece),
) -> Result<(), Fault> {
    let name = text::name(key, bytes);
    let is_part: fn(Kind) -> Option<PartKind> = match &*name {
        b"content" | b"images" if scan.peek() == Some(b'[') => return walk_parts(scan, bytes, found),
        b"role" => {
            let role = scan.value()?;
            let is_known = role
                .text()
                .is_some_and(|role| text::name(role, bytes).is_one_of(&ROLES));
            if !is_known {
                // Some upstreams take any text, and put it before the model (vLLM, by the model's template).
                found_value(role, found);
            }
            return Ok(());
        }
        b"content" | b"images" => |kind| (kind == Kind::Object).then_some(PartKind::Unknown),
        b"audio" => |kind| (kind != Kind::Null).then_some(PartKind::Audio),
        b"cache_control" => {
            found_control(scan.value()?, found);
            return Ok(());
        }
        _ => {
            fold::check(&name, &["content", "role", "images", "audio", CACHE_CONTROL])?;
            |_| None
        }
    };
    let value = scan.value()?;
    if let Some(kind) = is_part(value.kind) {
        found(Piece::Part(kind));
    }
    found_value(value, found);
    controls::find_within(value, bytes, found)
}

fn walk_parts(scan: &mut Scanner<'_>, bytes: &[u8], found: &mut impl FnMut(Piece)) -> Result<(), Fault> {
    let mut parts = scan.open_array()?;
    while scan.next_element(&mut parts)? {
        if scan.peek() == Some(b'{') {
            walk_part(scan, bytes, found)?;
        } else {
            let value = scan.value()?;
            found_value(value, found);
            controls::find_within(value, bytes, found)?;
        }
    }
    Ok(())
}

/// What is known of a part while its members are read.
#[derive(Default)]
struct Part {
    /// Its type was read: it is text, or a kind that is counted.
    is_typed: bool,
    /// The kind that its type names, and whether that kind's own member was seen.
    images: Seen,
    audios: Seen,
    files: Seen,
    is_unknown: bool,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    is_expected: bool,
    is_there: bool,
}

/// Reads one part. A member that holds an image, a sound or a file counts as one whatever the part's type says, and so does a type
/// without its member.
fn walk_part(scan: &mut Scanner<'_>, bytes: &[u8], found: &mut impl FnMut(Piece)) -> Result<(), Fault> {
    let mut part = Part::default();
    let mut members = scan.open_object()?;
    while let Some(key) = scan.next_key(&mut members)? {
        let name = text::name(key, bytes);
        match &*name {
            b"type" => {
                let value = scan.value()?;
                part.read_type(value, bytes);
            }
            // Null is none of them.
            b"image_url" | b"input_audio" | b"file" if scan.peek() == Some(b'n') => {
                scan.value()?;
            }
            b"image_url" => {
                part.images.is_there = true;
                found(Piece::Part(PartKind::Image));
                walk_bytes(scan, bytes, "url", found)?;
            }
            b"input_audio" => {
                part.audios.is_there = true;
                found(Piece::Part(PartKind::Audio));
                walk_bytes(scan, bytes, "data", found)?;
            }
            b"file" => {
                part.files.is_there = true;
                found(Piece::Part(PartKind::File));
                walk_bytes(scan, bytes, "file_data", found)?;
            }
            b"cache_control" => found_control(scan.value()?, found),
            _ => {
                fold::check(
                    &name,
                    &["type", "image_url", "input_audio", "file", "text", CACHE_CONTROL],
                )?;
                let value = scan.value()?;
                found_value(value, found);
                controls::find_within(value, bytes, found)?;
            }
        }
    }
    part.end(found);
    Ok(())
}

impl Part {
    fn read_type(&mut self, value: Value, bytes: &[u8]) {
        let kind = value.text().map(|kind| text::name(kind, bytes));
        let is_one_of = |names: &[&str]| kind.as_ref().is_some_and(|kind| kind.is_one_of(names));
        self.is_typed = true;
        if is_one_of(&TEXT_PARTS) {
        } else if is_one_of(&IMAGE_PARTS) {
            self.images.is_expected = true;
        } else if is_one_of(&AUDIO_PARTS) {
            self.audios.is_expected = true;
        } else if is_one_of(&FILE_PARTS) {
            self.files.is_expected = true;
        } else {
            self.is_unknown = true;
        }
    }

    fn end(&self, found: &mut impl FnMut(Piece)) {
        for (seen, kind) in [
            (self.images, PartKind::Image),
            (self.audios, PartKind::Audio),
            (self.files, PartKind::File),
        ] {
            if seen.is_expected && !seen.is_there {
                found(Piece::Part(kind));
            }
        }
        let is_known = self.is_typed || self.images.is_there || self.audios.is_there || self.files.is_there;
        if self.is_unknown || !is_known {
            found(Piece::Part(PartKind::Unknown));
        }
    }
}

/// Reads what holds the bytes of a part: a string, or an object whose member `name` is that string. The object's other members are text.
fn walk_bytes(
    scan: &mut Scanner<'_>,
    bytes: &[u8],
    name: &'static str,
    found: &mut impl FnMut(Piece),
) -> Result<(), Fault> {
    if scan.peek() != Some(b'{') {
        let value = scan.value()?;
        found_bytes(value, bytes, name, found);
        return Ok(());
    }
    let mut members = scan.open_object()?;
    while let Some(key) = scan.next_key(&mut members)? {
        let key = text::name(key, bytes);
        if *key == *name.as_bytes() {
            found_bytes(scan.value()?, bytes, name, found);
        } else if *key == *b"format" && name != "file_data" {
            let format = scan.value()?;
            found_value(format, found);
            let media = if name == "url" { "image/" } else { "audio/" };
            if format.text().is_some_and(|format| !may_be(format, bytes, media)) {
                found(Piece::Part(PartKind::Unknown));
            }
        } else if *key == *CACHE_CONTROL.as_bytes() {
            found_control(scan.value()?, found);
        } else {
            fold::check(&key, &[name, CACHE_CONTROL])?;
            let value = scan.value()?;
            found_value(value, found);
            controls::find_within(value, bytes, found)?;
        }
    }
    Ok(())
}

fn found_bytes(value: Value, bytes: &[u8], name: &str, found: &mut impl FnMut(Piece)) {
    let Some(data) = value.text() else {
        return found_value(value, found);
    };
    let beginning = text::beginning(data, bytes);
    // Some upstreams take documents and films in the place of an image, or of sound; by other addresses than the web's too.
    let is_of_web = beginning.is("https://") || beginning.is("http://");
    // Without a scheme it is the bytes themselves.
    let is_bare = !beginning.contains(&b':');
    let is_known = match name {
        // A longer one is none, however it is escaped.
        "url" if is_of_web => {
            data.span.len() <= ADDRESS_BYTES_MAX.saturating_mul(text::ESCAPE_BYTES_MAX)
                && may_be_image_at(&text::unescape(data, bytes))
        }
        "url" => beginning.is("data:image/") || is_bare,
        "data" => beginning.is("data:audio/") || is_bare,
        _ => true,
    };
    // At another address some provider fetches it.
    if name != "url" || beginning.is("data:") || is_bare {
        found(Piece::PartBytes(data.span));
    }
    if !is_known {
        found(Piece::Part(PartKind::Unknown));
    }
}

/// Whether what names its format so may be of this kind: by a name, or a media type of it.
fn may_be(format: Text, bytes: &[u8], media: &str) -> bool {
    let format = text::beginning(format, bytes);
    format.is(media) || !format.contains(&b'/')
}

/// Whether an image may be at an address of the web. LiteLLM takes what is there for a film or a document by how the address ends, and looks for
/// Google's storage anywhere in it.
fn may_be_image_at(address: &str) -> bool {
    if address.len() > ADDRESS_BYTES_MAX {
        return false;
    }
    let address = address.to_ascii_lowercase();
    let path = address.split(['?', '#']).next().unwrap_or_default();
    let names_other = |text: &str| OTHER_ENDS.iter().any(|end| text.trim_end().ends_with(end));
    !names_other(&address) && !names_other(path) && !address.contains("gs://")
}

/// How addresses of films and documents end.
const OTHER_ENDS: [&str; 15] = [
    ".mp4", ".mpeg", ".mpg", ".mpegps", ".mov", ".avi", ".wmv", ".flv", ".webm", ".mkv", ".m4v", ".3gp", ".3gpp",
    ".pdf", ".txt",
];
/// The longest address that is looked at.
const ADDRESS_BYTES_MAX: usize = 8 << 10;

/// Roles as OpenAI and its like have them, which are few bytes.
const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];

const IMAGE_PARTS: [&str; 3] = ["image_url", "input_image", "image"];
const AUDIO_PARTS: [&str; 2] = ["input_audio", "audio"];
const FILE_PARTS: [&str; 3] = ["file", "input_file", "document"];
const TEXT_PARTS: [&str; 6] = ["text", "input_text", "output_text", "refusal", "thinking", "reasoning"];
