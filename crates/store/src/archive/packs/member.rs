//! Members of a pack: what they are called, and the blocks in front of their bytes.
//!
//! Owns the promise that a pack is a plain tar file which any `tar` lists and extracts, whatever an entry is called: no
//! member's path is absolute, leads out of the folder it is extracted in, or has a component that a file system would not
//! take; and that the entry's own bytes can be read back from it.

use dispatcher_core::id::{EntryName, LeaseId};
use std::io;
use std::time::SystemTime;
use tar::{EntryType, Header};

/// Tar counts in blocks of so many bytes.
pub(super) const BLOCK: u64 = 512;

/// What ends a tar file: two empty blocks.
pub const END: [u8; 1024] = [0; 1024];

/// File systems insert space in front of a file in pages of so many bytes.
pub(super) const PAGE: u64 = 4096;

/// The longest path that a header holds by itself.
const SHORT: usize = 100;

/// The longest component of a path, in bytes, with room for what marks that it goes on.
const LONGEST: usize = 240;

/// `length` with the rest of its last block.
#[must_use]
pub const fn padded(length: u64) -> u64 {
    length.saturating_add(BLOCK - 1) / BLOCK * BLOCK
}

/// `entry/run.epoch/part`, where `entry` is what the archive calls the entry: `service/corpus/entry`.
pub(super) fn path(entry: &EntryName, lease: LeaseId, part: &str) -> Vec<u8> {
    let mut path = escape(entry);
    path.extend_from_slice(format!("/{}.{}/", lease.run.0, lease.epoch.0).as_bytes());
    escape_component(part.as_bytes(), &mut path);
    path
}

/// A path that can be extracted anywhere, for any bytes. Most names are left as they are. `%` begins what is written
/// otherwise: `%41` a byte, `%e` a component without a name, `%+` at the end of a component that goes on in the next one.
fn escape(name: &EntryName) -> Vec<u8> {
    let mut path = Vec::with_capacity(name.0.len());
    for (n, component) in name.0.split(|byte| *byte == b'/').enumerate() {
        if n > 0 {
            path.push(b'/');
        }
        escape_component(component, &mut path);
    }
    path
}

fn escape_component(component: &[u8], path: &mut Vec<u8>) {
    if component.is_empty() {
        path.extend_from_slice(b"%e");
        return;
    }
    let only_dots = component == b"." || component == b"..";
    let (mut length, mut goes_on) = (0, false);
    for byte in component {
        if length >= LONGEST {
            path.extend_from_slice(b"%+/");
            (length, goes_on) = (0, true);
        }
        let before = path.len();
        // What is left of a long name may be dots alone.
        let leading_dot = goes_on && length == 0 && *byte == b'.';
        if only_dots || leading_dot || matches!(byte, b'%' | b'/' | 0..=31 | 127) {
            path.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            path.push(*byte);
        }
        length += path.len() - before;
    }
}

/// The name that `escape` made a path of; `None` of a path that it did not make.
#[must_use]
pub fn unescape(path: &[u8]) -> Option<EntryName> {
    let mut name = Vec::with_capacity(path.len());
    let mut goes_on = true;
    for component in path.split(|byte| *byte == b'/') {
        if !goes_on {
            name.push(b'/');
        }
        goes_on = unescape_component(component, &mut name)?;
    }
    (!goes_on).then_some(EntryName(name))
}

/// Whether the component goes on in the next one.
fn unescape_component(component: &[u8], name: &mut Vec<u8>) -> Option<bool> {
    if component == b"%e" {
        return Some(false);
    }
    let mut rest = component.iter();
    let before = name.len();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            name.push(*byte);
            continue;
        }
        match (rest.next()?, rest.next()) {
            (b'+', None) => return Some(true),
            (high, Some(low)) => {
                let digits = [*high, *low];
                name.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
            }
            _ => return None,
        }
    }
    (name.len() > before).then_some(false)
}

/// The blocks in front of a member's bytes. A path that is too long for them is in blocks of its own, as GNU tar does it.
///
/// # Errors
/// Where a header cannot hold it.
pub fn front(path: &[u8], lease: LeaseId, length: u64) -> io::Result<Vec<u8>> {
    let mut blocks = Vec::with_capacity(512);
    if path.len() > SHORT {
        let mut long = Header::new_gnu();
        set_name(&mut long, b"././@LongLink");
        long.set_entry_type(EntryType::GNULongName);
        long.set_size(path.len() as u64 + 1);
        long.set_mode(0o644);
        plain(&mut long);
        blocks.extend_from_slice(long.as_bytes());
        blocks.extend_from_slice(path);
        blocks.push(0);
        blocks.resize(blocks.len().next_multiple_of(512), 0);
    }
    blocks.extend_from_slice(header(path, lease, length)?.as_bytes());
    Ok(blocks)
}

/// The same in whole pages, for a file into which space is inserted: records that any `tar` passes over fill it.
pub(super) fn front_in_pages(path: &[u8], lease: LeaseId, length: u64) -> io::Result<Vec<u8>> {
    let mut records = Vec::new();
    if path.len() > SHORT {
        records.extend_from_slice(&record(b"path", path));
    }
    let shortest = records.len() as u64 + 2 * BLOCK + 32;
    let whole = shortest.next_multiple_of(PAGE);
    let room = usize::try_from(whole - 2 * BLOCK).unwrap_or(usize::MAX) - records.len();
    let start = format!("{room} comment=");
    records.extend_from_slice(start.as_bytes());
    records.resize(records.len() + room - start.len() - 1, b' ');
    records.push(b'\n');
    let mut extended = Header::new_gnu();
    set_name(&mut extended, format!("PaxHeaders/{lease}").as_bytes());
    extended.set_entry_type(EntryType::XHeader);
    extended.set_size(records.len() as u64);
    extended.set_mode(0o644);
    plain(&mut extended);
    let mut blocks = extended.as_bytes().to_vec();
    blocks.extend_from_slice(&records);
    blocks.extend_from_slice(header(path, lease, length)?.as_bytes());
    Ok(blocks)
}

/// A record of an extended header: its length, itself included, a key and a value.
fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    let digits = length.to_string();
    let parts: [&[u8]; 6] = [digits.as_bytes(), b" ", key, b"=", value, b"\n"];
    parts.concat()
}

/// The block just before a member's bytes. Its group names the lease, so that whoever has only the block can tell.
fn header(path: &[u8], lease: LeaseId, length: u64) -> io::Result<Header> {
    let mut header = Header::new_gnu();
    match path.len() {
        0..=SHORT => set_name(&mut header, path),
        // Who does not understand the long path before it extracts under this one.
        _ => set_name(&mut header, format!("long-names/{lease}").as_bytes()),
    }
    header.set_entry_type(EntryType::Regular);
    header.set_size(length);
    header.set_mode(0o644);
    header.set_username("dispatcher")?;
    // A lease of improbably high numbers does not fit and is left out.
    let _ = header.set_groupname(&lease.to_string());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(now.as_secs());
    header.set_cksum();
    Ok(header)
}

fn plain(header: &mut Header) {
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
}

/// The crate's own way splits, checks and normalises; these names are checked already and stay as they are.
fn set_name(header: &mut Header, name: &[u8]) {
    let field = &mut header.as_old_mut().name;
    field.fill(0);
    field.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
}

/// What is wrong with the block before a member's bytes, if it is not that of `length` bytes of `lease`.
pub(super) fn fault_of(block: &[u8; 512], lease: LeaseId, length: u64) -> Option<String> {
    let header = Header::from_byte_slice(block);
    let sum: u32 =
        block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) }).sum();
    if header.cksum().ok() != Some(sum) {
        return Some("no member begins there".to_owned());
    }
    match header.entry_size() {
        Ok(size) if size == length => {}
        Ok(size) => return Some(format!("the member there has {size} bytes, not {length}")),
        Err(e) => return Some(format!("the member there has no size: {e}")),
    }
    let said = header.groupname_bytes().unwrap_or_default();
    (!said.is_empty() && said != lease.to_string().as_bytes())
        .then(|| format!("the member there belongs to {}, not to {lease}", String::from_utf8_lossy(said)))
}

#[cfg(test)]
mod tests;
