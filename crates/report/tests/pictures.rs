//! The pictures as an XML parser sees them.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use roxmltree::{Document, Node};
use sordino_report::{Axis, HeatMap, LineChart, Picture, Series};

fn all<'a>(picture: &'a Document, name: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    picture.descendants().filter(move |node| node.has_tag_name(("http://www.w3.org/2000/svg", name)))
}

fn number(node: Node, attribute: &str) -> f64 {
    node.attribute(attribute).unwrap().parse().unwrap()
}

/// The points of all lines, without the short ones of the legend.
fn lines(svg: &str) -> Vec<Vec<(f64, f64)>> {
    let picture = Document::parse(svg).unwrap();
    let read = |node: Node| -> Vec<(f64, f64)> {
        let points = node.attribute("points").unwrap().split(' ').map(|point| point.split_once(',').unwrap());
        points.map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).collect()
    };
    all(&picture, "svg")
        .nth(1)
        .unwrap()
        .children()
        .filter(|node| node.tag_name().name() == "polyline")
        .map(read)
        .collect()
}

fn texts(svg: &str) -> Vec<String> {
    let picture = Document::parse(svg).unwrap();
    all(&picture, "text").filter_map(|node| node.text().map(str::to_owned)).collect()
}

/// The place of a tick on an axis, from the label's own position.
fn label_place(svg: &str, label: &str, attribute: &str) -> f64 {
    let picture = Document::parse(svg).unwrap();
    let node = all(&picture, "text").find(|node| node.text() == Some(label)).unwrap();
    number(node, attribute)
}

#[test]
fn labels_with_markup_stay_text() {
    let evil = "<script>alert(\"1 & 2\")</script>\u{7}";
    let shown = "<script>alert(\"1 & 2\")</script>\u{fffd}";
    let chart = LineChart::new(evil)
        .x(Axis::linear(evil))
        .y(Axis::log(evil))
        .series(Series::new(evil, [(0.0, 1.0), (1.0, 2.0)]));
    let map = HeatMap::new(evil).rows(evil, [evil]).columns(evil, [evil]).values(evil, |_, _| Some(1.0));
    for (svg, times) in [(chart.to_svg(), 4), (map.to_svg(), 6)] {
        assert_eq!(texts(&svg).iter().filter(|text| *text == shown).count(), times);
        assert_eq!(all(&Document::parse(&svg).unwrap(), "script").count(), 0);
    }
}

#[test]
fn known_points_lie_at_their_ticks() {
    let svg = LineChart::new("")
        .x(Axis::linear("step"))
        .y(Axis::log("epsilon"))
        .series(Series::new("", [(0.0, 0.01), (2000.0, 1.0), (5000.0, 100.0)]))
        .to_svg();
    let line = &lines(&svg)[0];
    for ((x, y), (step, epsilon)) in line.iter().zip([("0", "0.01"), ("2000", "1"), ("5000", "100")]) {
        assert!((x - label_place(&svg, step, "x")).abs() < 0.02);
        // The text of a tick is 4 below its line, so that it is centred.
        assert!((y + 4.0 - label_place(&svg, epsilon, "y")).abs() < 0.02);
    }
    // The middle of a log axis is the geometric mean.
    assert!((line[1].1 - (line[0].1 + line[2].1) / 2.0).abs() < 0.02);
    // Higher values lie further up, where SVG's y is smaller.
    assert!(line[2].1 < line[0].1);
}

#[test]
fn values_that_cannot_be_drawn_leave_a_gap() {
    let points =
        [(1.0, 1.0), (2.0, 2.0), (3.0, f64::NAN), (4.0, 3.0), (5.0, 4.0), (6.0, f64::INFINITY), (7.0, 5.0)];
    let svg = LineChart::new("").series(Series::new("", points)).to_svg();
    assert_eq!(lines(&svg).iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    // The point alone between gaps is a dot.
    assert_eq!(all(&Document::parse(&svg).unwrap(), "circle").count(), 1);
    let log = LineChart::new("")
        .y(Axis::log(""))
        .series(Series::new("", [(1.0, -1.0), (2.0, 0.0), (3.0, 1.0), (4.0, 2.0)]));
    assert_eq!(lines(&log.to_svg()).iter().map(Vec::len).collect::<Vec<_>>(), [2]);
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn charts_without_points_show_no_data_and_single_points_are_dots() {
    let nothing =
        [LineChart::new("title"), LineChart::new("title").series(Series::new("a", [(f64::NAN, 1.0)]))];
    for chart in nothing {
        assert!(texts(&chart.to_svg()).contains(&"no data".to_owned()));
    }
    let svg = LineChart::new("").series(Series::new("a", [(3.0, 7.0)])).to_svg();
    let picture = Document::parse(&svg).unwrap();
    assert_eq!(all(&picture, "circle").count(), 1);
    assert!(!texts(&svg).contains(&"no data".to_owned()));
    assert!(texts(&HeatMap::new("title").to_svg()).contains(&"no data".to_owned()));
}

#[test]
fn a_spread_is_drawn_around_its_line() {
    let series = Series::new("", [(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)]);
    let spread = [(9.0, 11.0), (18.0, 22.0), (f64::NAN, 33.0)];
    let svg = LineChart::new("").series(series.clone().band(spread)).to_svg();
    let band = Document::parse(&svg).unwrap();
    let band = all(&band, "polygon").next().unwrap().attribute("points").unwrap();
    assert_eq!(band.split(' ').count(), 4);
    let svg = LineChart::new("").series(series.error_bars(spread)).to_svg();
    let picture = Document::parse(&svg).unwrap();
    let inside = all(&picture, "svg").nth(1).unwrap();
    // A stem and two caps for each of the two pairs that can be drawn.
    assert_eq!(inside.children().filter(|node| node.tag_name().name() == "line").count(), 6);
}

#[test]
fn a_fixed_range_cuts_lines_off_instead_of_stretching_the_axis() {
    let svg = LineChart::new("")
        .x(Axis::linear("").range(0.0, 1.0))
        .y(Axis::linear("").range(0.0, 1.0))
        .series(Series::new("", [(0.0, 0.0), (1.0, 1e140)]))
        .to_svg();
    assert!(lines(&svg)[0].iter().all(|(x, y)| x.abs() < 1e8 && y.abs() < 1e8));
    let picture = Document::parse(&svg).unwrap();
    assert_eq!(all(&picture, "svg").nth(1).unwrap().attribute("overflow"), Some("hidden"));
}

#[test]
fn a_map_has_each_value_in_its_cell() {
    let svg = HeatMap::new("")
        .rows("norm", ["r0", "r1"])
        .columns("rate", ["c0", "c1", "c2"])
        .values("", |row, column| (row + column != 3).then_some(10.0 * row as f64 + column as f64))
        .decimals(0)
        .outline(1, 1)
        .to_svg();
    let (row, column) = (label_place(&svg, "r1", "y"), label_place(&svg, "c1", "x"));
    let picture = Document::parse(&svg).unwrap();
    let eleven = all(&picture, "text").find(|node| node.text() == Some("11")).unwrap();
    assert!((number(eleven, "x") - column).abs() < 0.02 && (number(eleven, "y") - row).abs() < 1.0);
    assert_eq!(texts(&svg).iter().filter(|text| *text == "\u{2013}").count(), 1);
    // Low is dark with light text, high is bright with dark text.
    let ink = |text: &str| {
        all(&picture, "text").find(|node| node.text() == Some(text)).unwrap().attribute("fill").unwrap()
    };
    assert_eq!((ink("0"), ink("11")), ("#ffffff", "#111111"));
    // The frame is around the cell whose value it marks.
    let frame = all(&picture, "rect").find(|node| node.attribute("fill") == Some("none")).unwrap();
    let (left, width) = (number(frame, "x"), number(frame, "width"));
    assert!(left < column && column < left + width);
}

#[test]
fn a_map_of_equal_or_unusable_values_is_a_picture() {
    for value in [0.0, -3.0, 1e300, f64::NAN, f64::INFINITY, 1e-300, 1e20] {
        let svg =
            HeatMap::new("").rows("", ["a"]).columns("", ["b", "c"]).values("", |_, _| Some(value)).to_svg();
        assert!(Document::parse(&svg).is_ok(), "{value}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{value}");
    }
}

#[test]
fn the_same_chart_gives_the_same_bytes() {
    let chart = LineChart::new("t")
        .series(Series::new("a", (0..100).map(|i| (f64::from(i), f64::from(i).sin()))))
        .clone();
    assert_eq!(chart.to_svg(), chart.clone().to_svg());
    assert!(!chart.to_svg().contains(" id="));
}

#[test]
fn stacked_pictures_lie_below_each_other() {
    let chart = LineChart::new("one").series(Series::new("", [(0.0, 0.0), (1.0, 1.0)]));
    let map = HeatMap::new("two").rows("", ["a"]).columns("", ["b"]).values("", |_, _| Some(1.0));
    let size = |svg: &str| {
        let picture = Document::parse(svg).unwrap();
        (number(picture.root_element(), "width"), number(picture.root_element(), "height"))
    };
    let ((_, first), (_, second)) = (size(&chart.to_svg()), size(&map.to_svg()));
    let svg = Picture::stacked("both", [chart.picture(), map.picture()]).to_svg();
    assert_eq!(size(&svg).1, first + second);
    let picture = Document::parse(&svg).unwrap();
    let places: Vec<f64> = picture
        .root_element()
        .children()
        .filter(|node| node.tag_name().name() == "svg")
        .map(|node| number(node, "y"))
        .collect();
    assert_eq!(places, [0.0, first]);
    assert!(Document::parse(&Picture::stacked("none", []).to_svg()).is_ok());
}
