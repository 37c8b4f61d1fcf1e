//! A page as Markdown. Charts become tables of their numbers. A chart whose numbers are in another table is left out.

use std::fmt::Write;

use crate::{
    Page,
    page::{Block, Notice, Table},
};

impl Page {
    /// The page as Markdown (CommonMark with tables). All texts are escaped.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("# {}\n", plain(&self.title));
        for part in &self.parts {
            let _ = write!(text, "\n## {}\n\n", plain(&part.title));
            write_notice(&mut text, &part.verdict);
            for section in part.sections.iter().filter(|section| section.blocks.iter().any(is_written)) {
                let _ = write!(text, "\n### {}\n", plain(&section.title));
                for block in section.blocks.iter().filter(|block| is_written(block)) {
                    text.push('\n');
                    write_block(&mut text, block);
                }
            }
        }
        let _ = write!(text, "\n{}\n", plain(&self.footer));
        text
    }
}

/// Whether Markdown includes this block.
fn is_written(block: &Block) -> bool {
    !matches!(block, Block::Charts(charts) if charts.iter().all(|chart| chart.numbers.columns.is_empty()))
}

fn write_block(text: &mut String, block: &Block) {
    let _ = match block {
        Block::Paragraph(words) => writeln!(text, "{}", plain(words)),
        Block::Quote(words) => writeln!(text, "> {}", plain(words)),
        Block::Notice(notice) => {
            write_notice(text, notice);
            Ok(())
        }
        Block::Points(points) => points
            .iter()
            .try_for_each(|(label, words)| writeln!(text, "- **{}**: {}", plain(label), plain(words))),
        Block::List(items) => items.iter().try_for_each(|item| writeln!(text, "- {}", plain(item))),
        Block::Table(table) => {
            write_table(text, table);
            Ok(())
        }
        Block::Charts(charts) => {
            let with_numbers = charts.iter().filter(|chart| !chart.numbers.columns.is_empty());
            for (number, chart) in with_numbers.enumerate() {
                let gap = if number > 0 { "\n" } else { "" };
                let _ = write!(text, "{gap}**{}.** {}\n\n", plain(&chart.title), plain(&chart.description));
                // The title of the chart is the caption.
                write_table(text, &Table { caption: String::new(), ..chart.numbers.clone() });
            }
            Ok(())
        }
    };
}

fn write_notice(text: &mut String, notice: &Notice) {
    let _ = writeln!(text, "**{}**", plain(&notice.headline));
    for words in &notice.details {
        let _ = write!(text, "\n{}\n", plain(words));
    }
}

fn write_table(text: &mut String, table: &Table) {
    let line =
        |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
    if !table.caption.is_empty() {
        let _ = write!(text, "{}\n\n", plain(&table.caption));
    }
    *text += &line(&mut table.columns.iter().map(|(title, _)| plain(title)));
    *text +=
        &line(&mut table.columns.iter().map(|(_, number)| if *number { "---:" } else { "---" }.to_owned()));
    for row in &table.rows {
        *text += &line(&mut row.iter().map(|cell| plain(cell)));
    }
}

/// Text that Markdown shows as it is, in one line.
fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '$' => {
                safe.push('\\');
                safe.push(c);
            }
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    // At the start of a line these would begin a heading, a list or a rule.
    match safe.chars().next() {
        Some('#' | '-' | '+' | '=') => format!("\\{safe}"),
        _ => safe,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Chart, Part, Section, Tone};

    #[test]
    fn markup_stays_text() {
        assert_eq!(plain("a|b <script> *x* _y_ [z](u)"), "a\\|b &lt;script&gt; \\*x\\* \\_y\\_ \\[z\\](u)");
        assert_eq!(plain("# no heading\nno second line"), "\\# no heading no second line");
        assert_eq!(plain("- no list"), "\\- no list");
    }

    #[test]
    fn charts_without_numbers_are_left_out() {
        let chart = |title: &str, numbers: Table| Chart {
            name: title.to_owned(),
            title: title.to_owned(),
            description: String::new(),
            picture: crate::LineChart::new(title).picture(),
            numbers,
        };
        let bare = || chart("bare", Table::default());
        let counted = chart("counted", Table::new("", &["x", ">y"]).row(["a", "1"]));
        let section = |title: &str, charts| Section::new(title).with(Block::Charts(charts));
        let part = Part {
            title: String::new(),
            verdict: Notice { tone: Tone::Neutral, headline: String::new(), details: Vec::new() },
            sections: vec![section("First", vec![bare()]), section("Second", vec![bare(), counted])],
        };
        let text = Page { title: String::new(), parts: vec![part], footer: String::new() }.to_markdown();
        assert!(!text.contains("First") && !text.contains("bare"), "{text}");
        assert!(text.contains("### Second\n\n**counted.**") && text.contains("| a | 1 |"), "{text}");
    }
}
