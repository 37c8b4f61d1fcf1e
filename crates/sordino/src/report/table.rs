//! Tables of plain text.

/// The alignment of a column and its least width.
#[derive(Debug, Clone, Copy)]
pub enum Column {
    /// Aligned to the left.
    Left(usize),
    /// Aligned to the right.
    Right(usize),
}

/// A table, one row per line, indented by two spaces and with two spaces between columns.
pub fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let width = |index: usize, least: usize| {
        rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.chars().count()).fold(least, usize::max)
    };
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (index, (cell, column)) in row.iter().zip(columns).enumerate() {
            line += "  ";
            line += &match *column {
                Column::Left(least) => format!("{cell:<0$}", width(index, least)),
                Column::Right(least) => format!("{cell:>0$}", width(index, least)),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A Markdown table whose first row is its header.
pub fn markdown(columns: &[Column], rows: &[Vec<String>]) -> String {
    let line =
        |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
    let rule = line(&mut columns.iter().map(|column| match column {
        Column::Left(_) => "---".to_owned(),
        Column::Right(_) => "---:".to_owned(),
    }));
    // A bar would end its cell.
    let mut lines = rows.iter().map(|row| line(&mut row.iter().map(|cell| cell.replace('|', "\\|"))));
    let head = lines.next().unwrap_or_default();
    lines.fold(head + &rule, |text, line| text + &line)
}

/// Rows of a label and a text.
pub fn labelled(rows: &[(&str, String)]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|(label, value)| vec![(*label).to_owned(), value.clone()]).collect();
    table(&[Column::Left(11), Column::Left(0)], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_spaces() {
        let rows = [["a", "1", ""], ["long name", "12.5", "note"]];
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
        let text = table(&[Column::Left(3), Column::Right(6), Column::Left(0)], &rows);
        assert_eq!(text, "  a               1\n  long name    12.5  note\n");
        let text = markdown(&[Column::Left(3), Column::Right(6), Column::Left(0)], &rows);
        assert_eq!(text, "| a | 1 |  |\n| --- | ---: | --- |\n| long name | 12.5 | note |\n");
        assert_eq!(labelled(&[("epsilon", "1".to_owned())]), "  epsilon      1\n");
    }
}
