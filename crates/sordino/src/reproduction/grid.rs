//! Rows for all combinations of some values, as in the grids of the papers' figures.
//!
//! ```toml
//! [[row]]
//! name = "lr {lr}, r {r}"
//! grid = { lr = [0.1, 0.4], r = [0.01, 1] }
//! published = { algorithm = "dp-nsgd,regulariser={r}", learning_rate = "{lr}" }
//! ```
//!
//! stands for four rows, each with its `point` in the grid. A string that is only a name in braces becomes the value itself, such as a number.
//! `papers = { "lr 0.1, r 1" = [61.2] }`
//! states the paper's numbers for some of the rows.

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::{
    combinations::{combinations, count},
    comparison::Choice,
};

/// The place of a row in a grid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The name of its rows, without the values.
    pub(super) grid: String,
    /// The values.
    pub(super) values: Choice,
}

/// Replaces each row with a grid by a row for each combination of its values.
pub(super) fn expand(table: &mut Table) -> Result<(), String> {
    let Some(Value::Array(rows)) = table.get_mut("row") else { return Ok(()) };
    let mut expanded = Vec::new();
    for mut row in std::mem::take(rows) {
        let grid = match row.as_table_mut().and_then(|row| row.remove("grid")) {
            None => Table::new(),
            Some(Value::Table(grid)) => grid,
            Some(_) => return Err("a grid is a table of lists".to_owned()),
        };
        count(&grid).map_err(|name| format!("{name} in a grid is not a list"))?;
        let mut papers = match row.as_table_mut().and_then(|row| row.remove("papers")) {
            None => Table::new(),
            Some(Value::Table(papers)) => papers,
            Some(_) => return Err("papers is a table of lists".to_owned()),
        };
        // The name up to the first value.
        let name = row.get("name").and_then(Value::as_str).unwrap_or_default();
        let before = name.split_once('{').map_or("", |(before, _)| before);
        let family = before.rsplit_once(", ").map_or("", |(family, _)| family).to_owned();
        for values in combinations(&grid) {
            let mut row = row.clone();
            substitute(&mut row, &values);
            let name = row.get("name").and_then(Value::as_str).unwrap_or_default();
            if name.contains('{') {
                return Err(format!("{name:?} has a name in braces that is not in its grid"));
            }
            let paper = papers.remove(name);
            if let Some(row) = row.as_table_mut() {
                row.extend(paper.map(|paper| ("paper".to_owned(), paper)));
                if !values.is_empty() {
                    let point = [("grid", Value::String(family.clone())), ("values", Value::Table(values))];
                    let point = point.map(|(name, value)| (name.to_owned(), value));
                    row.insert("point".to_owned(), Value::Table(point.into_iter().collect()));
                }
            }
            expanded.push(row);
        }
        if let Some(name) = papers.keys().next() {
            return Err(format!("papers names {name:?}, which is not a row"));
        }
    }
    *rows = expanded;
    Ok(())
}

fn substitute(value: &mut Value, values: &Table) {
    match value {
        Value::String(text) => {
            let name = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            if let Some(whole) = name.and_then(|name| values.get(name)) {
                *value = whole.clone();
                return;
            }
            for (name, part) in values {
                let part = part.as_str().map_or_else(|| part.to_string(), str::to_owned);
                *text = text.replace(&format!("{{{name}}}"), &part);
            }
        }
        Value::Table(table) => table.iter_mut().for_each(|(_, value)| substitute(value, values)),
        Value::Array(list) => list.iter_mut().for_each(|value| substitute(value, values)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_a_row_for_each_combination() {
        let mut table: Table = r#"
            [[row]]
            name = "plain"
            [[row]]
            name = "DP-C4, a {a}, b {b}"
            grid = { b = [0.5, 2], a = [1, 3] }
            papers = { "DP-C4, a 3, b 0.5" = [61.2] }
            published = { algorithm = "x,a={a}", learning_rate = "{b}" }
        "#
        .parse()
        .unwrap();
        expand(&mut table).unwrap();
        let rows = table["row"].as_array().unwrap();
        let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            ["plain", "DP-C4, a 1, b 0.5", "DP-C4, a 1, b 2", "DP-C4, a 3, b 0.5", "DP-C4, a 3, b 2"]
        );
        assert_eq!(rows[3]["published"]["algorithm"].as_str(), Some("x,a=3"));
        assert_eq!(rows[3]["published"]["learning_rate"].as_float(), Some(0.5));
        assert_eq!(rows[3]["paper"].as_array().unwrap()[0].as_float(), Some(61.2));
        assert!(rows[4].get("paper").is_none() && rows[0].get("point").is_none());
        assert_eq!(rows[3]["point"]["values"], Value::Table("a = 3\nb = 0.5".parse().unwrap()));
        assert_eq!(rows[3]["point"]["grid"].as_str(), Some("DP-C4"));
        assert!(rows.iter().all(|row| row.get("grid").is_none() && row.get("papers").is_none()));
        for (row, problem) in [
            ("grid = { a = 1 }", "a in a grid is not a list"),
            ("papers = [1]", "papers is a table"),
            ("name = \"{b}\"\ngrid = { a = [1] }", "not in its grid"),
            ("name = \"{a}\"\ngrid = { a = [\"x\"] }\npapers = { y = [1] }", "\"y\", which is not a row"),
        ] {
            let mut wrong: Table = format!("[[row]]\n{row}").parse().unwrap();
            assert!(expand(&mut wrong).unwrap_err().contains(problem), "{row}");
        }
    }
}
