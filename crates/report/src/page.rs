//! A report as data: parts, sections and blocks of plain text, tables and charts.
//!
//! All texts are plain: they are escaped wherever they are written. [`Page::to_html`] and [`Page::to_markdown`] write the same content.

use crate::Picture;

/// A report.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Its title.
    pub title: String,
    /// What the report is about: one part for each run, comparison or audit.
    pub parts: Vec<Part>,
    /// A sentence at the end, such as the version that wrote the page.
    pub footer: String,
}

/// The part of a report about one run, comparison or audit.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its title.
    pub title: String,
    /// The result in one sentence, before everything else.
    pub verdict: Notice,
    /// Its sections.
    pub sections: Vec<Section>,
}

/// A sentence that stands out, with further sentences.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// How it is coloured.
    pub tone: Tone,
    /// The sentence.
    pub headline: String,
    /// Further sentences, one paragraph each.
    pub details: Vec<String>,
}

/// How a [`Notice`] is coloured. The meaning is in its text as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Something is proved.
    Good,
    /// Something is not proved, or is false.
    Bad,
    /// Neither.
    Neutral,
}

/// Blocks under a heading.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// The blocks.
    pub blocks: Vec<Block>,
}

impl Section {
    /// A section without blocks.
    pub fn new(title: impl Into<String>) -> Section {
        Section { title: title.into(), blocks: Vec::new() }
    }

    /// Adds a block.
    pub fn with(mut self, block: Block) -> Section {
        self.blocks.push(block);
        self
    }
}

/// A piece of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A paragraph.
    Paragraph(String),
    /// A sentence that stands out.
    Notice(Notice),
    /// Points of a label and a text each.
    Points(Vec<(String, String)>),
    /// A list of sentences.
    List(Vec<String>),
    /// Text that is meant to be copied, such as a paragraph for a paper.
    Quote(String),
    /// A table.
    Table(Table),
    /// Charts, which are beside each other if there is room.
    Charts(Vec<Chart>),
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// The columns: their titles, and whether they are aligned to the right, as numbers are.
    pub columns: Vec<(String, bool)>,
    /// The cells. The first cell of a row is its heading.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows. A title that begins with `>` is that of a column of numbers.
    pub fn new(caption: impl Into<String>, columns: &[&str]) -> Table {
        let column = |title: &&str| match title.strip_prefix('>') {
            Some(title) => (title.to_owned(), true),
            None => ((*title).to_owned(), false),
        };
        Table { caption: caption.into(), columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<C: Into<String>>(mut self, cells: impl IntoIterator<Item = C>) -> Table {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }
}

/// A chart with its text alternative.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// A short name for files, such as `epsilon-spent`.
    pub name: String,
    /// The title.
    pub title: String,
    /// What the chart shows: a sentence for screen readers, which is also the caption.
    pub description: String,
    /// The drawing.
    pub picture: Picture,
    /// The numbers of the chart, or some of them.
    pub numbers: Table,
}

impl Part {
    /// All charts, in their order.
    pub fn charts(&self) -> Vec<&Chart> {
        let blocks = self.sections.iter().flat_map(|section| &section.blocks);
        let charts = blocks.flat_map(|block| match block {
            Block::Charts(charts) => charts.as_slice(),
            _ => &[],
        });
        charts.collect()
    }
}
