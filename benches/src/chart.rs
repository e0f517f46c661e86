//! Charts as SVG files: [`bars`] in groups, and [`lines`] over axes that may be logarithmic.
//!
//! Both begin with the title and the legend, above the data, so that neither covers any of it.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::io;
use std::ops::Range;
use std::path::Path;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Width and height, in pixels.
const SIZE: (u32, u32) = (960, 560);
/// The colours of Okabe and Ito, which people who see few colours can tell apart.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];
const INK: RGBColor = RGBColor(34, 34, 34);
const GRID: RGBColor = RGBColor(222, 222, 222);
const FONT: &str = "sans-serif";
const TITLE: u32 = 24;
const TEXT: u32 = 17;

/// What one axis shows, and how.
#[derive(Clone, Debug)]
pub struct Axis {
    caption: String,
    logarithmic: bool,
}

impl Axis {
    /// An axis on which equal distances are equal differences. The caption names what is shown and its unit.
    pub fn linear(caption: impl Into<String>) -> Self {
        Self { caption: caption.into(), logarithmic: false }
    }

    /// An axis on which equal distances are equal ratios: it takes no zero. The caption names what is shown and its
    /// unit.
    pub fn logarithmic(caption: impl Into<String>) -> Self {
        Self { caption: caption.into(), logarithmic: true }
    }

    /// Where a value lies.
    fn place(&self, value: f64) -> f64 {
        if self.logarithmic { value.log10() } else { value }
    }

    /// The value that lies there.
    fn value(&self, place: f64) -> f64 {
        if self.logarithmic { 10_f64.powf(place) } else { place }
    }

    /// The range that shows all of the values, and where it is marked.
    fn coordinates(&self, values: impl Iterator<Item = f64>, from_zero: bool) -> Marked {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            (least, most) = (least.min(value), most.max(value));
        }
        let (range, marks) = if self.logarithmic { ratios(least, most) } else { differences(least, most, from_zero) };
        Marked { range: range.into(), marks }
    }

    fn check(&self, mut values: impl Iterator<Item = f64>) -> io::Result<()> {
        if values.all(|value| value.is_finite() && (value > 0.0 || !self.logarithmic)) {
            return Ok(());
        }
        Err(unfit(format!("a value on the axis {:?} has no place there", self.caption)))
    }
}

/// A range with a label and a line of the grid at each of the marks.
struct Marked {
    range: RangedCoordf64,
    marks: Vec<f64>,
}

impl Ranged for Marked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        self.range.map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.marks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.range()
    }
}

/// Bars of one colour: one in each group.
#[derive(Clone, Debug)]
pub struct Bars {
    name: String,
    values: Vec<f64>,
}

impl Bars {
    /// The bars' name in the legend and their heights, group by group.
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        Self { name: name.into(), values: values.into_iter().collect() }
    }
}

/// One line through its points, each of which is marked unless they are many.
#[derive(Clone, Debug)]
pub struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

impl Line {
    /// The line's name in the legend and its points, from left to right.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { name: name.into(), points: points.into_iter().collect() }
    }
}

/// Draws groups of bars side by side, from zero, with its height written on top of each bar.
///
/// `height` is the caption of the vertical axis, with the unit.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] if there is no bar, a negative one, or not one for each group; otherwise what
/// writing the file gives.
///
/// # Examples
///
/// ```
/// use idem_benches::chart::{self, Bars};
///
/// let file = std::env::temp_dir().join(format!("bars-{}.svg", std::process::id()));
/// let sides = [Bars::new("before", [120.0, 80.0]), Bars::new("after", [240.0, 75.5])];
/// chart::bars(&file, "Operations", "operations a second", &["fresh", "replay"], &sides)?;
/// # std::fs::remove_file(file)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn bars(file: &Path, title: &str, height: &str, groups: &[&str], bars: &[Bars]) -> io::Result<()> {
    let heights = || bars.iter().flat_map(|bars| bars.values.iter().copied());
    if heights().next().is_none() || bars.iter().any(|bars| bars.values.len() != groups.len()) {
        return Err(unfit("there is not one bar of each colour in each group".into()));
    }
    if !heights().all(|height| height.is_finite() && height >= 0.0) {
        return Err(unfit("a bar has no height".into()));
    }
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    let names: Vec<&str> = bars.iter().map(|bars| bars.name.as_str()).collect();
    let plot = headed(&root, title, &names)?;
    let middles = (0..groups.len()).map(|group| group as f64 + 0.5).collect();
    let across = Marked { range: (0.0..groups.len() as f64).into(), marks: middles };
    let vertical = Axis::linear(height).coordinates(heights(), true);
    let mut chart = ChartBuilder::on(&plot)
        .margin(8)
        .x_label_area_size(48)
        .y_label_area_size(104)
        .build_cartesian_2d(across, vertical)
        .map_err(io::Error::other)?;
    let group_name = |middle: &f64| groups.get(*middle as usize).map_or_else(String::new, ToString::to_string);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_label_formatter(&group_name)
        .y_label_formatter(&|height| number(*height))
        .y_desc(height)
        .label_style(text(TEXT))
        .axis_desc_style(text(TEXT))
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .draw()
        .map_err(io::Error::other)?;

    // Of a group's width, a fifth is left between it and the next one.
    let width = 0.8 / bars.len() as f64;
    for (place, bars) in bars.iter().enumerate() {
        for (group, &height) in bars.values.iter().enumerate() {
            let left = group as f64 + 0.1 + width * place as f64;
            let right = left + 0.94 * width;
            let bar = Rectangle::new([(left, 0.0), (right, height)], colour(place).filled());
            let style = text(TEXT - 4).pos(Pos::new(HPos::Center, VPos::Bottom));
            let label = Text::new(number(height), (f64::midpoint(left, right), height), style);
            chart.draw_series([bar]).map_err(io::Error::other)?;
            chart.draw_series([label]).map_err(io::Error::other)?;
        }
    }
    root.present().map_err(io::Error::other)
}

/// Draws lines. A linear vertical axis begins at zero.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] if there is no point, or one that has no place on its axis, as zero has none on a
/// logarithmic one; otherwise what writing the file gives.
///
/// # Examples
///
/// ```
/// use idem_benches::chart::{self, Axis, Line};
///
/// let file = std::env::temp_dir().join(format!("lines-{}.svg", std::process::id()));
/// let line = Line::new("replay", [(1e4, 900.0), (1e6, 880.0), (2e7, 850.0)]);
/// let (across, up) = (Axis::logarithmic("rows in the table"), Axis::linear("operations a second"));
/// chart::lines(&file, "Replays", &across, &up, &[line])?;
/// # std::fs::remove_file(file)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn lines(file: &Path, title: &str, horizontal: &Axis, vertical: &Axis, lines: &[Line]) -> io::Result<()> {
    let points = || lines.iter().flat_map(|line| line.points.iter().copied());
    if points().next().is_none() {
        return Err(unfit("there is no point".into()));
    }
    horizontal.check(points().map(|point| point.0))?;
    vertical.check(points().map(|point| point.1))?;
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let plot = headed(&root, title, &names)?;
    let across = horizontal.coordinates(points().map(|point| point.0), false);
    let up = vertical.coordinates(points().map(|point| point.1), true);
    let mut chart = ChartBuilder::on(&plot)
        .margin(8)
        .margin_right(28)
        .x_label_area_size(62)
        .y_label_area_size(104)
        .build_cartesian_2d(across, up)
        .map_err(io::Error::other)?;
    chart
        .configure_mesh()
        .x_label_formatter(&|place| number(horizontal.value(*place)))
        .y_label_formatter(&|place| number(vertical.value(*place)))
        .x_desc(&horizontal.caption)
        .y_desc(&vertical.caption)
        .label_style(text(TEXT))
        .axis_desc_style(text(TEXT))
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .draw()
        .map_err(io::Error::other)?;

    for (index, line) in lines.iter().enumerate() {
        let placed = || line.points.iter().map(|&(x, y)| (horizontal.place(x), vertical.place(y)));
        let style = colour(index).stroke_width(2);
        chart.draw_series(LineSeries::new(placed(), style)).map_err(io::Error::other)?;
        if line.points.len() <= 40 {
            let marks = placed().map(|place| Circle::new(place, 4, colour(index).filled()));
            chart.draw_series(marks).map_err(io::Error::other)?;
        }
    }
    root.present().map_err(io::Error::other)
}

/// Paints the background, the title and the legend; what is left is for the data.
fn headed<'a>(root: &Area<'a>, title: &str, names: &[&str]) -> io::Result<Area<'a>> {
    const LEFT: i32 = 24;
    const ROW: i32 = 24;
    const SWATCH: i32 = 14;
    root.fill(&WHITE).map_err(io::Error::other)?;
    root.draw(&Text::new(title.to_owned(), (LEFT, 14), text(TITLE))).map_err(io::Error::other)?;
    let (mut x, mut y) = (LEFT, 50);
    for (index, name) in names.iter().enumerate() {
        let (measured, _) = root.estimate_text_size(name, &text(TEXT)).map_err(io::Error::other)?;
        let width = SWATCH + 8 + measured as i32 + 28;
        if x > LEFT && x + width > SIZE.0 as i32 {
            (x, y) = (LEFT, y + ROW);
        }
        let swatch = Rectangle::new([(x, y), (x + SWATCH, y + SWATCH)], colour(index).filled());
        root.draw(&swatch).map_err(io::Error::other)?;
        let style = text(TEXT).pos(Pos::new(HPos::Left, VPos::Center));
        let label = Text::new((*name).to_owned(), (x + SWATCH + 8, y + SWATCH / 2), style);
        root.draw(&label).map_err(io::Error::other)?;
        x += width;
    }
    Ok(root.split_vertically(y + ROW).1)
}

fn text<'a>(size: u32) -> TextStyle<'a> {
    (FONT, size).into_font().color(&INK)
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// Powers of ten with the values well inside, marked at 1, 2 and 5 times each power where there are few of them.
fn ratios(least: f64, most: f64) -> (Range<f64>, Vec<f64>) {
    let (low, high) = ((least / 1.25).log10(), (most * 1.25).log10());
    let marks = |factors: &[f64]| -> Vec<f64> {
        let powers = low.floor() as i32..=high.ceil() as i32;
        let marks = powers.flat_map(|power| factors.iter().map(move |factor| f64::from(power) + factor.log10()));
        marks.filter(|mark| (low..=high).contains(mark)).collect()
    };
    let powers = marks(&[1.0]);
    (low..high, if powers.len() < 3 { marks(&[1.0, 2.0, 5.0]) } else { powers })
}

/// The values' range, marked at about six multiples of 1, 2 or 5 times a power of ten.
fn differences(least: f64, most: f64, from_zero: bool) -> (Range<f64>, Vec<f64>) {
    let low = if from_zero { least.min(0.0) } else { least };
    let span = if most > low { most - low } else { 1.0 };
    let power = 10_f64.powf((span / 6.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= span / 6.0);
    let step = step.unwrap_or(span);
    let high = if from_zero { low + span * 1.08 } else { low + span };
    let first = (low / step).ceil() as i64;
    let marks = (first..).map(|multiple| multiple as f64 * step).take_while(|mark| *mark <= high).collect();
    (low..high, marks)
}

/// A number as people read it: three digits that count, or all before the point, with thousands apart.
#[must_use]
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 | 100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        small => (2.0 - small.log10().floor()) as usize,
    };
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let (sign, whole) = whole.split_at(whole.len() - whole.trim_start_matches('-').len());
    let mut grouped = String::from(sign);
    for (index, digit) in whole.char_indices() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match fraction.trim_end_matches('0') {
        "" => grouped,
        fraction => format!("{grouped}.{fraction}"),
    }
}

fn unfit(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_read_them() {
        let cases = [
            (0.0, "0"),
            (0.0325, "0.0325"),
            (0.5, "0.5"),
            (1.0, "1"),
            (2.5, "2.5"),
            (75.46, "75.5"),
            (999.6, "1,000"),
            (20_000_000.0, "20,000,000"),
            (-1234.0, "-1,234"),
        ];
        for (value, written) in cases {
            assert_eq!(number(value), written);
        }
    }

    #[test]
    fn marks_are_round_and_inside() {
        let (range, marks) = differences(120.0, 9_400.0, true);
        assert_eq!((range.start, marks), (0.0, vec![0.0, 2e3, 4e3, 6e3, 8e3, 1e4]));
        let (range, marks) = ratios(1e4, 2e7);
        assert_eq!(marks, [4.0, 5.0, 6.0, 7.0]);
        assert!(range.start < 4.0 && range.end > 2e7_f64.log10());
        let (_, marks) = ratios(300.0, 900.0);
        assert_eq!(marks.iter().map(|mark| 10_f64.powf(*mark).round()).collect::<Vec<_>>(), [500.0, 1000.0]);
        // Equal values have a range, too.
        assert!(!differences(5.0, 5.0, false).0.is_empty());
    }

    #[test]
    fn a_file_shows_every_name_and_every_bar() {
        let file = std::env::temp_dir().join(format!("idem-chart-{}.svg", std::process::id()));
        let sides = [Bars::new("before & after", [1.0, 2.0]), Bars::new("since", [3.0, 1_234.0])];
        bars(&file, "A title", "calls a second", &["one", "two"], &sides).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        for text in ["A title", "before &amp; after", "since", "calls a second", "one", "two", "1,234"] {
            assert!(svg.contains(&format!("\n{text}\n")), "{text} in {svg}");
        }
        // The background, two swatches, four bars.
        assert_eq!(svg.matches("<rect").count(), 7);
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        let file = Path::new("/nonexistent/chart.svg");
        let drawn = |points: [(f64, f64); 1]| {
            lines(file, "", &Axis::linear(""), &Axis::logarithmic(""), &[Line::new("", points)]).unwrap_err().kind()
        };
        assert_eq!(drawn([(0.0, 0.0)]), io::ErrorKind::InvalidInput);
        assert_eq!(drawn([(f64::NAN, 1.0)]), io::ErrorKind::InvalidInput);
        assert_ne!(drawn([(0.0, 1.0)]), io::ErrorKind::InvalidInput);
        let refused = bars(file, "", "", &["one", "two"], &[Bars::new("", [1.0])]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
