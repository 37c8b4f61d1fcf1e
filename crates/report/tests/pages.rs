//! Pages as an XML parser and a reader of Markdown see them.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use roxmltree::{Document, Node, ParsingOptions};
use sordino_report::{
    Axis, Block, Chart, DotPlot, DotRow, LineChart, MARK, Notice, Page, Part, Section, Series, Table, Tone,
};

const EVIL: &str = "<script>alert(\"1 & 2\")</script>";

/// A page that has this text in every place that takes one.
fn page(text: &str) -> Page {
    let notice = |tone| Notice { tone, headline: text.to_owned(), details: vec![text.to_owned()] };
    let table = || Table::new(text, &[text, ">n"]).row([text, "1"]);
    let line = LineChart::new(text)
        .compact()
        .x(Axis::linear(text))
        .y(Axis::linear(text))
        .series(Series::new(text, [(0.0, 1.0), (1.0, 2.0)]))
        .series(Series::new(text, [(0.5, 1.5)]).only_markers());
    let dots = DotPlot::new(text, Axis::linear(text)).row(DotRow::new(text, 1.0)).mark(text, 2.0);
    let chart = |name: &str, picture| Chart {
        name: name.to_owned(),
        title: text.to_owned(),
        description: text.to_owned(),
        picture,
        numbers: table(),
    };
    let section = Section::new(text)
        .with(Block::Paragraph(text.to_owned()))
        .with(Block::Notice(notice(Tone::Neutral)))
        .with(Block::Points(vec![(text.to_owned(), text.to_owned())]))
        .with(Block::List(vec![text.to_owned()]))
        .with(Block::Quote(text.to_owned()))
        .with(Block::Table(table()))
        .with(Block::Charts(vec![chart("line", line.picture()), chart("dots", dots.picture())]));
    let part = |tone| Part { title: text.to_owned(), verdict: notice(tone), sections: vec![section.clone()] };
    Page { title: text.to_owned(), parts: vec![part(Tone::Good), part(Tone::Bad)], footer: text.to_owned() }
}

fn parsed(html: &str) -> Document<'_> {
    Document::parse_with_options(html, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() })
        .unwrap()
}

fn all<'a>(page: &'a Document, name: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    page.descendants().filter(move |node| node.tag_name().name() == name)
}

#[test]
fn markup_in_texts_stays_text() {
    let (html, plain) = (page(EVIL).to_html(), page("text").to_html());
    let (page, plain) = (parsed(&html), parsed(&plain));
    assert_eq!(all(&page, "script").count(), 0);
    // The same elements, whatever the text.
    let names = |page: &Document| -> Vec<String> {
        page.descendants().map(|node| node.tag_name().name().to_owned()).collect()
    };
    assert_eq!(names(&page), names(&plain));
    assert_eq!(all(&page, "h1").next().unwrap().text(), Some(EVIL));
    assert!(all(&page, "figcaption").count() == 4 && all(&page, "blockquote").count() == 2);
}

#[test]
fn a_page_refers_to_nothing_outside_itself() {
    let html = page("text").to_html();
    assert!(html.contains(MARK) && !html.contains("http://") && !html.contains("https://"));
    for name in ["src=", "@import", "url(", "<iframe", "<object"] {
        assert!(!html.contains(name), "{name}");
    }
    let page = parsed(&html);
    let links = page.descendants().filter_map(|node| node.attribute("href"));
    let ids: Vec<&str> = page.descendants().filter_map(|node| node.attribute("id")).collect();
    for link in links.filter(|link| *link != "data:,") {
        let id = link.strip_prefix('#').unwrap();
        assert_eq!(ids.iter().filter(|other| **other == id).count(), 1, "{link}");
    }
}

#[test]
fn charts_and_tables_have_names_for_screen_readers() {
    let html = page("a name").to_html();
    let page = parsed(&html);
    for chart in all(&page, "svg").filter(|node| node.attribute("class") == Some("chart")) {
        assert_eq!(chart.attribute("role"), Some("img"));
        let names: Vec<&str> =
            chart.children().filter(Node::is_element).map(|node| node.tag_name().name()).take(2).collect();
        assert_eq!(names, ["title", "desc"]);
    }
    for table in all(&page, "table") {
        assert!(table.descendants().any(|node| node.tag_name().name() == "caption"));
        let heads = table.descendants().filter(|node| node.tag_name().name() == "th");
        assert!(heads.into_iter().all(|head| matches!(head.attribute("scope"), Some("col" | "row"))));
    }
    let levels: Vec<&str> = page
        .descendants()
        .map(|node| node.tag_name().name())
        .filter(|name| ["h1", "h2", "h3"].contains(name))
        .collect();
    assert_eq!(levels, ["h1", "h2", "h3", "h2", "h3"]);
}

#[test]
fn numbers_are_shown_while_the_pointer_is_on_a_point() {
    let chart = LineChart::new("spent").x(Axis::linear("step")).y(Axis::linear("epsilon"));
    let chart = chart.series(Series::new("", [(100.0, 0.25), (200.0, 0.5)]));
    assert!(!chart.to_svg().contains("step 100"));
    let svg = chart.compact().picture().to_inline_svg("what it shows");
    assert!(svg.contains("<title>step 100, epsilon 0.25</title>"), "{svg}");
    assert!(svg.contains("<desc>what it shows</desc>") && !svg.contains("<rect width"), "{svg}");
}

#[test]
fn markdown_has_the_same_content_and_escapes_it() {
    let text = page(EVIL).to_markdown();
    assert!(!text.contains("<script>") && text.contains("# &lt;script&gt;alert"), "{text}");
    let text = page("a|b").to_markdown();
    assert!(
        text.contains("| a\\|b | 1 |\n")
            && text.contains("> a\\|b\n")
            && text.contains("- **a\\|b**: a\\|b\n"),
        "{text}"
    );
    // The numbers of both charts, and the table, in each part.
    assert_eq!(text.matches("| --- | ---: |").count(), 6);
}

#[test]
fn the_same_page_gives_the_same_bytes() {
    assert_eq!(page(EVIL).to_html(), page(EVIL).to_html());
}
