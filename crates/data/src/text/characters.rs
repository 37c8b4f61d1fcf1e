//! Characters of a public alphabet.

use std::collections::HashMap;
use std::ops::RangeInclusive;

/// The characters of the alphabet that is used if none is given: tab, line end, printable ASCII, and the Latin letters of
/// European languages (Latin-1 and Latin Extended-A).
const DEFAULT: [RangeInclusive<char>; 3] = ['\t'..='\n', ' '..='~', 'À'..='ſ'];

/// The token of each character of a public alphabet, counted from 1. All other characters are token 0.
pub(crate) struct Characters(HashMap<char, u32>);

impl Characters {
    /// The characters of the alphabet must differ.
    pub(crate) fn new(alphabet: Option<&str>) -> Characters {
        let default = || DEFAULT.into_iter().flatten().collect();
        let characters: Vec<char> = alphabet.map_or_else(default, |alphabet| alphabet.chars().collect());
        Characters(characters.into_iter().zip(1..).collect())
    }

    /// The number of tokens, including the one for unknown characters.
    pub(crate) fn size(&self) -> usize {
        self.0.len() + 1
    }

    /// The text of tokens; unknown characters become U+FFFD.
    pub(crate) fn text(&self, tokens: impl Iterator<Item = u32>) -> String {
        let characters: HashMap<u32, char> =
            self.0.iter().map(|(&character, &token)| (token, character)).collect();
        tokens.map(|token| characters.get(&token).copied().unwrap_or('\u{fffd}')).collect()
    }

    pub(crate) fn tokens<'a>(&'a self, text: &'a str) -> impl Iterator<Item = u32> + 'a {
        text.chars().map(|character| self.0.get(&character).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_numbered_and_all_others_share_a_token() {
        let characters = Characters::new(Some("ba,"));
        assert_eq!(characters.tokens("ab,xÿA").collect::<Vec<_>>(), [2, 1, 3, 0, 0, 0]);
        assert_eq!(characters.size(), 4);
    }

    #[test]
    fn the_default_alphabet_has_ascii_and_latin_letters() {
        let characters = Characters::new(None);
        assert_eq!(characters.size(), 1 + 2 + 95 + 192);
        assert!(characters.tokens("Ślusàrski O'Neál, 1999~\t\n").all(|token| token > 0));
        assert!(characters.tokens("пи\r\u{301}").all(|token| token == 0));
        // Models are trained with these numbers, so they must never change.
        assert_eq!(characters.tokens("\t Aaéſ").collect::<Vec<_>>(), [1, 3, 36, 68, 139, 289]);
    }
}
