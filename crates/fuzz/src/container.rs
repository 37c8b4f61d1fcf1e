//! What surrounds the content of a file: it is taken apart, the content is damaged, and it is put together again.

use std::io::{Cursor, Read, Write};

use flate2::{Compression, Crc, bufread::GzDecoder, write::GzEncoder};
use sha2::{Digest, Sha256};
use zip::{ZipArchive, ZipWriter, write::SimpleFileOptions};

use crate::{mutation, random::Random};

/// The layout of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// Bytes.
    Bytes,
    /// Text.
    Text,
    /// Text that is compressed with gzip.
    Gzip,
    /// An archive of NPY files.
    Npz,
    /// The length of a header in two bytes, at offset 8, and the header as text.
    Npy,
    /// The length of a header in eight bytes, the header as JSON, and arrays.
    Safetensors,
    /// Blocks, each with its length, its type and a checksum.
    Png,
    /// Lines, each with the hash of the previous hash and its own text.
    Ledger,
}

impl Container {
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Ledger)
    }

    /// The file with damaged content in a good container; none for a file that has no container.
    pub(crate) fn rebuilt(self, good: &[u8], random: &mut Random) -> Option<Vec<u8>> {
        let all = [good.to_vec()];
        match self {
            Self::Bytes | Self::Text => None,
            Self::Gzip => {
                let mut content = Vec::new();
                GzDecoder::new(good).read_to_end(&mut content).ok()?;
                gzip(&mutation::text(&content, &[content.clone()], random))
            }
            Self::Npz => npz(good, random),
            Self::Npy => {
                let length = usize::from(u16::from_le_bytes([*good.get(8)?, *good.get(9)?]));
                let header = mutation::text(good.get(10..10 + length)?, &all, random);
                let length = (header.len().min(0xffff) as u16).to_le_bytes();
                Some(
                    [
                        &good[..8],
                        &length,
                        &header,
                        &good[10 + usize::from(u16::from_le_bytes([good[8], good[9]]))..],
                    ]
                    .concat(),
                )
            }
            Self::Safetensors => {
                let length = usize::try_from(u64::from_le_bytes(good.get(..8)?.try_into().ok()?)).ok()?;
                let header = mutation::text(good.get(8..8 + length)?, &all, random);
                Some([&(header.len() as u64).to_le_bytes(), &header[..], &good[8 + length..]].concat())
            }
            Self::Png => png(good, random),
            Self::Ledger => ledger(good, random),
        }
    }
}

/// Compresses with gzip.
pub fn gzip(content: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).ok()?;
    encoder.finish().ok()
}

/// An archive of these files.
pub fn archive(files: &[(String, Vec<u8>)]) -> Option<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        writer.start_file(name.as_str(), SimpleFileOptions::default()).ok()?;
        writer.write_all(bytes).ok()?;
    }
    Some(writer.finish().ok()?.into_inner())
}

fn npz(good: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut reader = ZipArchive::new(Cursor::new(good)).ok()?;
    let mut files = Vec::new();
    for index in 0..reader.len() {
        let mut file = reader.by_index(index).ok()?;
        let (name, mut bytes) = (file.name().ok()?.into_owned(), Vec::new());
        file.read_to_end(&mut bytes).ok()?;
        files.push((name, bytes));
    }
    let (all, chosen) =
        (files.iter().map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>(), random.below(files.len()));
    let (_, bytes) = files.get_mut(chosen)?;
    *bytes = match Container::Npy.rebuilt(bytes, random) {
        Some(rebuilt) if !random.one_in(3) => rebuilt,
        _ => mutation::bytes(bytes, &all, random),
    };
    archive(&files)
}

fn png(good: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let (signature, mut rest) = good.split_at_checked(8)?;
    let mut blocks = Vec::new();
    while let Some(length) = rest.first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        blocks.push(rest.get(4..8 + length)?.to_vec());
        rest = rest.get(12 + length..)?;
    }
    let chosen = random.below(blocks.len());
    blocks[chosen] = mutation::bytes(&blocks[chosen], &blocks, random);
    let mut file = signature.to_vec();
    for block in blocks {
        let mut checksum = Crc::new();
        checksum.update(&block);
        file.extend((block.len().saturating_sub(4) as u32).to_be_bytes());
        file.extend(&block);
        file.extend(checksum.sum().to_be_bytes());
    }
    Some(file)
}

/// The lines of a ledger without their hashes.
pub fn events(ledger: &[u8]) -> Vec<&[u8]> {
    let lines = ledger.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines
        .map(|line| line.iter().position(|&byte| byte == b' ').map_or(line, |space| &line[space + 1..]))
        .collect()
}

/// A ledger of these lines, with a correct chain of hashes.
pub fn chained(events: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let (mut previous, mut ledger) = ([0; 32], Vec::new());
    for event in events {
        previous = Sha256::new().chain_update(previous).chain_update(event).finalize().into();
        ledger.extend(previous.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
        ledger.push(b' ');
        ledger.extend(event.as_ref());
        ledger.push(b'\n');
    }
    ledger
}

fn ledger(good: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let mut events: Vec<Vec<u8>> = events(good).into_iter().map(<[u8]>::to_vec).collect();
    let (chosen, other) = (random.below(events.len()), random.below(events.len()));
    match random.below(5) {
        0 => drop(events.remove(chosen)),
        1 => events.insert(chosen, events[other].clone()),
        2 => events.swap(chosen, other),
        _ => {
            let line = mutation::text(&events[chosen], &events, random);
            events[chosen] = line.into_iter().filter(|&byte| byte != b'\n').collect();
        }
    }
    Some(chained(&events))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_good_after_their_content_was_damaged() {
        let random = &mut Random::new(3);
        for _ in 0..100 {
            let rebuilt = Container::Gzip.rebuilt(&gzip(b"1 1:2\n").unwrap(), random).unwrap();
            GzDecoder::new(&rebuilt[..]).read_to_end(&mut Vec::new()).unwrap();
            let ledger = Container::Ledger.rebuilt(&chained(&["{\"a\":1}", "{\"b\":2}"]), random).unwrap();
            assert_eq!(chained(&events(&ledger)), ledger);
        }
    }
}
