//! Words, numbered by a hash.

/// The numbers of the lowercase words of a text, from 0 to `size - 1`.
///
/// A word is a maximal sequence of letters, digits and apostrophes that does not consist of apostrophes only. Its number is the FNV-1a hash
/// of its UTF-8 bytes, 64 bits, modulo `size`. Models are trained with these numbers, so they must never change.
pub(crate) fn tokens(text: &str, size: u32) -> impl Iterator<Item = u32> + '_ {
    let in_word = |character: char| character.is_alphanumeric() || character == '\'';
    let words = text.split(move |character| !in_word(character));
    words.filter(|word| word.chars().any(char::is_alphanumeric)).map(move |word| number(word, size))
}

fn number(word: &str, size: u32) -> u32 {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut total = 0xcbf2_9ce4_8422_2325;
    for character in word.chars().flat_map(char::to_lowercase) {
        total = character.encode_utf8(&mut [0; 4]).bytes().fold(total, hash);
    }
    (total % u64::from(size)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u32 = u32::MAX;

    #[test]
    fn the_hash_is_the_published_one() {
        // FNV-1a, 64 bits: the test vectors of the authors, http://www.isthe.com/chongo/src/fnv/test_fnv.c
        for (word, hash) in [
            ("a", 0xaf63_dc4c_8601_ec8c_u64),
            ("foobar", 0x8594_4171_f739_67e8),
            ("foo", 0xdcb2_7518_fed9_d577),
        ] {
            assert_eq!(u64::from(number(word, ALL)), hash % u64::from(ALL), "{word}");
        }
    }

    #[test]
    fn words_are_lowercase_and_without_punctuation() {
        let numbers = |text| tokens(text, ALL).collect::<Vec<_>>();
        assert_eq!(numbers("Don't  LIKE--it!"), ["don't", "like", "it"].map(|word| number(word, ALL)));
        assert_eq!(numbers("Ünder\n7"), ["ünder", "7"].map(|word| number(word, ALL)));
        assert_eq!(numbers(" ' -- ... "), [0; 0]);
        assert!(tokens("a b c d e f g", 3).all(|token| token < 3));
    }
}
