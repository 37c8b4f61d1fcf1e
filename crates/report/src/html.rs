//! A page as one HTML file: no scripts, no fonts, no links to other pages.

use std::fmt::Write;

use crate::{
    Page,
    page::{Block, Chart, Notice, Part, Section, Table, Tone},
    svg::escaped,
};

/// The element that marks a file as a report of Sordino, which may be replaced by a newer one.
pub const MARK: &str = "<meta name=\"generator\" content=\"sordino report\"/>";

const STYLE: &str = include_str!("style.css");

impl Page {
    /// The page as the text of an HTML file.
    ///
    /// # Guarantees
    /// All texts are escaped, and the page is also well-formed XML. The file refers to nothing outside itself, and its
    /// content security policy forbids browsers to load anything. The same page always gives the same bytes.
    pub fn to_html(&self) -> String {
        let title = escaped(&self.title);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n{MARK}\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<meta name=\"color-scheme\" content=\"light dark\"/>\n\
             <link rel=\"icon\" href=\"data:,\"/>\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <a class=\"skip\" href=\"#content\">Skip to the content</a>\n<header>\n<h1>{title}</h1>\n"
        );
        html += &self.contents();
        html += "</header>\n<main id=\"content\" tabindex=\"-1\">\n";
        for (number, part) in self.parts.iter().enumerate() {
            write_part(&mut html, number, part);
        }
        let _ = write!(
            html,
            "</main>\n<footer>\n<p>{}</p>\n</footer>\n</body>\n</html>\n",
            escaped(&self.footer)
        );
        html
    }

    /// Links to all parts and sections.
    fn contents(&self) -> String {
        let mut html = "<nav aria-label=\"Contents\">\n<ul>\n".to_owned();
        for (number, part) in self.parts.iter().enumerate() {
            let _ = write!(html, "<li><a href=\"#p{number}\">{}</a>\n<ul>\n", escaped(&part.title));
            for (place, section) in part.sections.iter().enumerate() {
                let _ =
                    writeln!(html, "<li><a href=\"#p{number}-{place}\">{}</a></li>", escaped(&section.title));
            }
            html += "</ul>\n</li>\n";
        }
        html + "</ul>\n</nav>\n"
    }
}

fn write_part(html: &mut String, number: usize, part: &Part) {
    let _ = write!(
        html,
        "<article aria-labelledby=\"p{number}\">\n<h2 id=\"p{number}\" tabindex=\"-1\">{}</h2>\n",
        escaped(&part.title)
    );
    write_notice(html, &part.verdict);
    for (place, section) in part.sections.iter().enumerate() {
        write_section(html, &format!("p{number}-{place}"), section);
    }
    html.push_str("</article>\n");
}

fn write_section(html: &mut String, id: &str, section: &Section) {
    let _ = write!(
        html,
        "<section aria-labelledby=\"{id}\">\n<h3 id=\"{id}\" tabindex=\"-1\">{}</h3>\n",
        escaped(&section.title)
    );
    for block in &section.blocks {
        write_block(html, block);
    }
    html.push_str("</section>\n");
}

// Writing to a string does not fail.
fn write_block(html: &mut String, block: &Block) {
    match block {
        Block::Paragraph(text) => {
            let _ = writeln!(html, "<p>{}</p>", escaped(text));
        }
        Block::Notice(notice) => write_notice(html, notice),
        Block::Points(points) => {
            html.push_str("<dl>\n");
            for (label, text) in points {
                let _ = writeln!(html, "<div><dt>{}</dt><dd>{}</dd></div>", escaped(label), escaped(text));
            }
            html.push_str("</dl>\n");
        }
        Block::List(items) => {
            html.push_str("<ul>\n");
            for item in items {
                let _ = writeln!(html, "<li>{}</li>", escaped(item));
            }
            html.push_str("</ul>\n");
        }
        Block::Quote(text) => {
            let _ = writeln!(html, "<blockquote><p>{}</p></blockquote>", escaped(text));
        }
        Block::Table(table) => write_table(html, table),
        Block::Charts(charts) => {
            html.push_str("<div class=\"charts\">\n");
            charts.iter().for_each(|chart| write_chart(html, chart));
            html.push_str("</div>\n");
        }
    }
}

fn write_notice(html: &mut String, notice: &Notice) {
    let tone = match notice.tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Neutral => "neutral",
    };
    let _ = writeln!(
        html,
        "<div class=\"notice {tone}\">\n<p><strong>{}</strong></p>",
        escaped(&notice.headline)
    );
    for text in &notice.details {
        let _ = writeln!(html, "<p>{}</p>", escaped(text));
    }
    html.push_str("</div>\n");
}

/// A table in a box that can be scrolled on a narrow screen, also with the keyboard.
fn write_table(html: &mut String, table: &Table) {
    let caption = escaped(&table.caption);
    let _ = write!(
        html,
        "<div class=\"scroll\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\">\n<table>\n<caption><span>{caption}</span></caption>\n<thead>\n<tr>"
    );
    let class = |number: bool| if number { " class=\"number\"" } else { "" };
    for (title, number) in &table.columns {
        let _ = write!(html, "<th scope=\"col\"{}>{}</th>", class(*number), escaped(title));
    }
    html.push_str("</tr>\n</thead>\n<tbody>\n");
    for row in &table.rows {
        html.push_str("<tr>");
        for (place, (cell, (_, number))) in row.iter().zip(&table.columns).enumerate() {
            let _ = match place {
                0 => write!(html, "<th scope=\"row\"{}>{}</th>", class(*number), escaped(cell)),
                _ => write!(html, "<td{}>{}</td>", class(*number), escaped(cell)),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
}

fn write_chart(html: &mut String, chart: &Chart) {
    let _ = write!(
        html,
        "<figure>\n<figcaption><strong>{}</strong><br/>{}</figcaption>\n{}",
        escaped(&chart.title),
        escaped(&chart.description),
        chart.picture.to_inline_svg(&chart.description)
    );
    if !chart.numbers.rows.is_empty() {
        let _ = writeln!(html, "<details>\n<summary>Numbers of “{}”</summary>", escaped(&chart.title));
        write_table(html, &chart.numbers);
        html.push_str("</details>\n");
    }
    html.push_str("</figure>\n");
}
