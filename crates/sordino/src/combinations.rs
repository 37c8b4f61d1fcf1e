//! All choices of one value from each of several lists.

use toml::{Table, Value};

/// The number of [`combinations`], or the largest number if there are more. The error is the name of an entry that is not a list.
pub(crate) fn count(lists: &Table) -> Result<usize, String> {
    let mut lengths =
        lists.iter().map(|(name, list)| list.as_array().map(Vec::len).ok_or_else(|| name.clone()));
    lengths.try_fold(1_usize, |product, length| Ok(product.saturating_mul(length?)))
}

/// A table for each choice of one value from each list. The value of the last name in alphabetical order varies fastest.
pub(crate) fn combinations(lists: &Table) -> Vec<Table> {
    let mut all = vec![Table::new()];
    for (name, list) in lists {
        let values: &[Value] = list.as_array().map_or(&[], Vec::as_slice);
        let with = |choice: &Table, value: &Value| {
            let mut choice = choice.clone();
            choice.insert(name.clone(), value.clone());
            choice
        };
        all = all.iter().flat_map(|choice| values.iter().map(move |value| with(choice, value))).collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_occurs_once_and_the_last_name_varies_fastest() {
        let lists: Table = "b = [1, 2]\na = [\"x\", \"y\", \"z\"]".parse().unwrap();
        let all = combinations(&lists);
        assert_eq!((all.len(), count(&lists)), (6, Ok(6)));
        let texts: Vec<String> =
            all.iter().map(|choice| format!("{}{}", choice["a"].as_str().unwrap(), choice["b"])).collect();
        assert_eq!(texts, ["x1", "x2", "y1", "y2", "z1", "z2"]);
        assert_eq!(combinations(&Table::new()), [Table::new()]);
        assert_eq!(count(&"a = 3".parse().unwrap()), Err("a".to_owned()));
        assert_eq!(count(&"a = []".parse().unwrap()), Ok(0));
    }
}
