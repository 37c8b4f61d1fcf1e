//! Damage to good files. Random bytes would be refused at the first magic number, so every input begins as a good file, and containers
//! (compression, archives, checksums, chains of hashes) are rebuilt around damaged content.

use crate::{container::Container, random::Random};

/// Numbers at the edges of what readers expect, as texts.
const NUMBERS: [&str; 30] = [
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "7",
    "255",
    "256",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "1e-320",
    "1e-8",
    "0.5",
    "0.1",
    "1.0000001",
    "1e9",
    "1e18",
    "1e38",
    "1e39",
    "1e308",
    "1e309",
    "nan",
    "inf",
];

/// Pieces that have a meaning in some text format.
const PIECES: [&str; 30] = [
    "\"",
    "'",
    ",",
    ";",
    ":",
    "=",
    "\n",
    "\r\n",
    "\t",
    " ",
    "#",
    "{",
    "}",
    "[",
    "]",
    "[[",
    "]]",
    "(",
    ")",
    "\\",
    "\\u0000",
    "\0",
    "\u{feff}",
    "\u{13080}",
    "é",
    "null",
    "true",
    "false",
    "@",
    "%",
];

/// A damaged copy of a good file. `all` has other good files, whose parts may be put into this one.
pub fn damaged(container: Container, good: &[u8], all: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    if !random.one_in(4)
        && let Some(rebuilt) = container.rebuilt(good, random)
    {
        return rebuilt;
    }
    match container.is_text() {
        true if !random.one_in(8) => text(good, all, random),
        _ => bytes(good, all, random),
    }
}

/// Several damages to bytes.
pub fn bytes(good: &[u8], all: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=random.below(4) {
        damage_bytes(&mut bytes, all, random);
    }
    bytes
}

fn damage_bytes(bytes: &mut Vec<u8>, all: &[Vec<u8>], random: &mut Random) {
    let place = random.below(bytes.len());
    match random.below(9) {
        0 if !bytes.is_empty() => bytes[place] ^= 1 << random.below(8),
        1 if !bytes.is_empty() => bytes[place] = random.bits() as u8,
        2 => bytes.truncate(place),
        3 => drop(bytes.drain(random.range(bytes.len()))),
        4 => {
            let copy = bytes[random.range(bytes.len())].to_vec();
            bytes.splice(place..place, copy);
        }
        5 | 6 => overwrite(bytes, place, random),
        7 => {
            let other = random.of(all);
            let part = &other[random.range(other.len())];
            let end = (place + if random.one_in(2) { part.len() } else { 0 }).min(bytes.len());
            bytes.splice(place.min(end)..end, part.iter().copied());
        }
        _ => bytes.splice(place..place, (0..=random.below(16)).map(|_| random.bits() as u8)).for_each(drop),
    }
}

/// Writes a number of 1, 2, 4 or 8 bytes that is likely to be a wrong size.
fn overwrite(bytes: &mut [u8], place: usize, random: &mut Random) {
    let values = [
        0,
        1,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0x8000,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        1 << 40,
        1 << 62,
        u64::MAX,
    ];
    let value = random.of(&values).wrapping_add(random.below(3) as u64).wrapping_sub(1);
    let width = *random.of(&[1, 2, 4, 8]);
    let number = if random.one_in(2) {
        value.to_le_bytes()[..width].to_vec()
    } else {
        value.to_be_bytes()[8 - width..].to_vec()
    };
    for (byte, new) in bytes.iter_mut().skip(place).zip(number) {
        *byte = new;
    }
}

/// Several damages to the words, numbers and lines of a text.
pub fn text(good: &[u8], all: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut parts = parts(good);
    for _ in 0..=random.below(3) {
        damage_text(&mut parts, all, random);
    }
    parts.concat()
}

/// Words and numbers as they are, every other byte alone.
fn parts(text: &[u8]) -> Vec<Vec<u8>> {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte) || byte >= 0x80;
    text.chunk_by(|&one, &next| inside(one) && inside(next)).map(<[u8]>::to_vec).collect()
}

fn damage_text(parts: &mut Vec<Vec<u8>>, all: &[Vec<u8>], random: &mut Random) {
    let place = random.below(parts.len());
    match random.below(10) {
        0..=2 => {
            let numbers: Vec<usize> =
                (0..parts.len()).filter(|&part| parts[part][0].is_ascii_digit()).collect();
            if !numbers.is_empty() {
                let place = *random.of(&numbers);
                parts[place] = random.of(&NUMBERS).as_bytes().to_vec();
            }
        }
        3 if !parts.is_empty() => parts[place] = random.of(&NUMBERS).as_bytes().to_vec(),
        4 => parts.insert(place, random.of(&PIECES).as_bytes().to_vec()),
        5 if !parts.is_empty() => drop(parts.remove(place)),
        6 if !parts.is_empty() => {
            let other = random.below(parts.len());
            parts.swap(place, other);
        }
        7 => {
            let lines =
                random.of(all).split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
            if !lines.is_empty() {
                parts.insert(place, random.of(&lines).clone());
            }
        }
        8 => {
            let other = self::parts(&random.of(all)[..]);
            if !other.is_empty() && !parts.is_empty() {
                parts[place].clone_from(random.of(&other));
            }
        }
        // Deep nesting, long words, many lines.
        _ => {
            let range = random.range(parts.len());
            let copy = if range.is_empty() {
                vec![random.of(&PIECES).as_bytes().to_vec()]
            } else {
                parts[range].to_vec()
            };
            let times = if random.one_in(50) { 3000 } else { random.below(4) };
            let copies = copy
                .iter()
                .cycle()
                .take(copy.len() * times.min(30_000 / copy.len()))
                .cloned()
                .collect::<Vec<_>>();
            parts.splice(place..place, copies).for_each(drop);
        }
    }
    parts.retain(|part| !part.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_depends_on_its_number_alone_and_most_inputs_differ_from_the_good_file() {
        let good = b"a,b\n1,2.5\n".to_vec();
        let make =
            |seed| damaged(Container::Text, &good, std::slice::from_ref(&good), &mut Random::new(seed));
        assert!((0..200).all(|seed| make(seed) == make(seed)));
        assert!((0..200).filter(|&seed| make(seed) != good).count() > 150);
    }

    #[test]
    fn parts_of_a_text_are_its_words() {
        assert_eq!(
            parts(b"a1 = -2.5\n"),
            [b"a1".to_vec(), b" ".to_vec(), b"=".to_vec(), b" ".to_vec(), b"-2.5".to_vec(), b"\n".to_vec()]
        );
    }
}
