//! Lines and bars as SVG. The only module that knows the plotting library.

mod bars;

use std::ops::Range;

use assent_kind::Kind;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::drawing::{DrawingArea, IntoDrawingArea as _};
use plotters::element::{Circle, DynElement, IntoDynElement as _, PathElement, Polygon};
use plotters::prelude::{DrawingBackend, SVGBackend};
use plotters::series::LineSeries;
use plotters::style::{Color as _, IntoTextStyle as _, RGBColor, ShapeStyle};

use super::Plot;
use crate::BenchError;
use crate::report::html::escaped;
use crate::report::{ChartKind, ChartSpec, shown};

/// Drawn for half a wide screen; on a phone it is scaled to about 0.6, where its texts are still 11 pixels high.
const SIZE: (u32, u32) = (600, 390);
/// The library shrinks by 1.24.
const FONT: u32 = 22;
/// Points of a line that are marked, at most.
const MARKED_MAX: usize = 15;
const SWATCH: (u32, u32) = (40, 14);
const INK: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// Told apart also by who sees no red or green. Source: Okabe and Ito, "Color Universal Design" (2008), without the yellow,
/// which is too faint on white, and with a grey.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];
/// Shapes of [`marker`]. Six and seven have no common divisor: 42 lines differ.
const MARKERS: usize = 6;
const TICKS_MAX: usize = 8;

/// The chart as an SVG element for a page; `id` is unique there. Empty where nothing can be drawn.
///
/// # Errors
/// What the library says.
pub fn svg(spec: &ChartSpec, plot: &Plot, id: &str) -> Result<String, BenchError> {
    if spec.kind == ChartKind::Bars {
        return bars::svg(spec, plot, id);
    }
    let (Some(x), Some(y)) =
        (Axis::over(plot.places().map(|(x, _)| x), spec.x_log), Axis::over(plot.places().map(|(_, y)| y), spec.y_log))
    else {
        return Ok(String::new());
    };
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    lay(&area, spec, plot, (x, y)).map_err(failed)?;
    area.present().map_err(failed)?;
    drop(area);
    Ok(named(&text, id, &spec.title, &about(spec, plot)))
}

/// For who does not see it.
fn about(spec: &ChartSpec, plot: &Plot) -> String {
    let names: Vec<&str> = plot.lines.iter().map(|line| line.name.as_str()).collect();
    let kind = match spec.kind {
        ChartKind::Lines | ChartKind::Series => "Lines",
        ChartKind::Curve => "Curves",
        ChartKind::Bars => "Bars",
    };
    let (y, x) = (&spec.y_title, &spec.x_title);
    format!("{kind} of {y} over {x}: {}. The table below has the figures.", names.join("; "))
}

/// The chart as a picture of its own: its title above it, its legend below. Empty where nothing can be drawn.
///
/// # Errors
/// What the library says.
pub fn picture(spec: &ChartSpec, plot: &Plot) -> Result<String, BenchError> {
    const TITLE: u32 = 34;
    const ROW: u32 = 22;
    let chart = svg(spec, plot, "chart")?;
    if chart.is_empty() {
        return Ok(chart);
    }
    let (width, height) = SIZE;
    let rows = u32::try_from(plot.lines.len()).unwrap_or(u32::MAX).saturating_mul(ROW);
    let all = (TITLE + height + ROW / 2).saturating_add(rows);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{all}\" viewBox=\"0 0 {width} {all}\" \
         font-family=\"sans-serif\" fill=\"#333\">\n<rect width=\"{width}\" height=\"{all}\" fill=\"#fff\"/>\n\
         <text x=\"{}\" y=\"23\" font-size=\"17\" text-anchor=\"middle\">{}</text>\n{}\n",
        width / 2,
        escaped(&spec.title),
        at(&chart, 0, TITLE)
    );
    let mut y = TITLE + height;
    for (number, line) in plot.lines.iter().enumerate() {
        text.push_str(&at(&swatch(number)?, 24, y));
        text.push_str(&format!("<text x=\"72\" y=\"{}\" font-size=\"14\">{}</text>\n", y + 12, escaped(&line.name)));
        y = y.saturating_add(ROW);
    }
    text.push_str("</svg>\n");
    Ok(text)
}

/// An element of its own, put into another one.
fn at(svg: &str, x: u32, y: u32) -> String {
    svg.replacen("<svg ", &format!("<svg x=\"{x}\" y=\"{y}\" "), 1)
}

/// A line's colour and marker, for a legend.
///
/// # Errors
/// What the library says.
pub fn swatch(number: usize) -> Result<String, BenchError> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, SWATCH).into_drawing_area();
    let style = stroke(number);
    area.draw(&PathElement::new([(1, 7), (39, 7)], style)).map_err(failed)?;
    area.draw(&marker(number, (20, 7))).map_err(failed)?;
    area.present().map_err(failed)?;
    drop(area);
    Ok(bare(&text).replacen("<svg ", "<svg aria-hidden=\"true\" ", 1))
}

fn failed(error: impl std::fmt::Display) -> BenchError {
    BenchError::new(Kind::Internal, format!("drawing a chart: {error}"))
}

type Drawn<DB> = Result<(), plotters::drawing::DrawingAreaErrorKind<<DB as DrawingBackend>::ErrorType>>;

fn lay<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    spec: &ChartSpec,
    plot: &Plot,
    (x, y): (Axis, Axis),
) -> Drawn<DB> {
    let labels = y.ticks.iter().map(|tick| shown(*tick).len()).max().unwrap_or(1);
    // Digits are about 0.55 of their size wide; the title stands beside them.
    let beside = 34 + 10 * u32::try_from(labels).unwrap_or(8);
    let mut chart: ChartContext<'_, DB, Cartesian2d<Axis, Axis>> = ChartBuilder::on(area)
        .margin_top(10)
        .margin_right(22)
        .set_label_area_size(plotters::chart::LabelAreaPosition::Left, beside)
        .set_label_area_size(plotters::chart::LabelAreaPosition::Bottom, 56)
        .build_cartesian_2d(x, y)?;
    let font = ("sans-serif", FONT).with_color(INK).into_text_style(area);
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(GRID)
        .max_light_lines(0)
        .axis_style(INK)
        .label_style(font.clone())
        .axis_desc_style(font)
        .x_labels(TICKS_MAX)
        .y_labels(TICKS_MAX)
        .x_desc(&spec.x_title)
        .y_desc(&spec.y_title)
        .draw()?;
    for (number, line) in plot.lines.iter().enumerate() {
        // A cell that failed leaves a gap.
        for run in line.points.split(|point| point.at.is_none()) {
            let places: Vec<(f64, f64)> = run.iter().filter_map(|point| point.at).collect();
            chart.draw_series(LineSeries::new(places.iter().copied(), stroke(number)))?;
            // Of a long line some points are marked, to tell it from others.
            for place in places.iter().copied().step_by(places.len() / MARKED_MAX + 1) {
                let pixel = chart.backend_coord(&place);
                area.draw(&marker(number, pixel))?;
            }
        }
    }
    Ok(())
}

fn colour(number: usize) -> RGBColor {
    COLOURS.get(number % COLOURS.len()).copied().unwrap_or(INK)
}

fn stroke(number: usize) -> ShapeStyle {
    colour(number).stroke_width(2)
}

fn marker<DB: DrawingBackend>(number: usize, (x, y): (i32, i32)) -> DynElement<'static, DB, (i32, i32)> {
    let (full, thin) = (colour(number).filled(), stroke(number));
    match number % MARKERS {
        0 => Circle::new((x, y), 4, full).into_dyn(),
        1 => Polygon::new([(x - 4, y - 4), (x + 4, y - 4), (x + 4, y + 4), (x - 4, y + 4)], full).into_dyn(),
        2 => Polygon::new([(x, y - 5), (x + 5, y + 4), (x - 5, y + 4)], full).into_dyn(),
        // One path for both strokes of the cross.
        3 => {
            PathElement::new([(x - 5, y - 5), (x + 5, y + 5), (x, y), (x - 5, y + 5), (x + 5, y - 5)], thin).into_dyn()
        }
        4 => Polygon::new([(x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)], full).into_dyn(),
        _ => Circle::new((x, y), 4, thin).into_dyn(),
    }
}

/// A range with ticks at round values; logarithmic or not.
#[derive(Clone, Debug, PartialEq)]
struct Axis {
    from: f64,
    to: f64,
    log: bool,
    ticks: Vec<f64>,
    /// What stands at the ticks instead of numbers, from the first tick on.
    names: Vec<String>,
}

impl Axis {
    /// Over these values. A linear one begins at 0, so that heights compare.
    fn over(values: impl Iterator<Item = f64>, log: bool) -> Option<Self> {
        let (least, most) = values.fold(None, |ends: Option<(f64, f64)>, value| {
            let (least, most) = ends.unwrap_or((value, value));
            Some((least.min(value), most.max(value)))
        })?;
        let (from, to) = match log {
            true => (least / 1.3, most * 1.3),
            false => (least.min(0.0), if most > 0.0 { most * 1.05 } else { 1.0 }),
        };
        let ticks = if log { decades(from, to) } else { rounds(from, to) };
        Some(Self { from, to, log, ticks, names: Vec::new() })
    }

    fn scaled(&self, value: f64) -> f64 {
        if self.log { value.log10() } else { value }
    }
}

/// Steps of 1, 2 or 5 times a power of ten.
fn rounds(from: f64, to: f64) -> Vec<f64> {
    let rough = (to - from) / 8.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|one| one * power).find(|step| *step >= rough).unwrap_or(rough);
    let first = (from / step).ceil();
    (0_u32..20).map(|number| (first + f64::from(number)) * step).take_while(|tick| *tick <= to).collect()
}

/// 1, 2 and 5 of each decade while they are few, else the decades.
fn decades(from: f64, to: f64) -> Vec<f64> {
    let all = |steps: &'static [f64]| {
        let first = from.log10().floor();
        let decade = move |number: u32| 10_f64.powf(first + f64::from(number));
        let ticks = (0_u32..40).flat_map(move |number| steps.iter().map(move |step| step * decade(number)));
        ticks.filter(|tick| *tick >= from && *tick <= to).collect::<Vec<f64>>()
    };
    [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]]
        .into_iter()
        .map(all)
        .find(|ticks| ticks.len() <= TICKS_MAX)
        .unwrap_or_else(|| all(&[1.0]).into_iter().step_by(2).collect())
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    #[expect(clippy::cast_possible_truncation, reason = "a pixel of a chart")]
    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (self.scaled(*value) - self.scaled(self.from)) / (self.scaled(self.to) - self.scaled(self.from));
        let share = if share.is_finite() { share } else { 0.0 };
        first + (f64::from(last - first) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let at = self.ticks.iter().position(|tick| (tick - value).abs() < 1e-9);
        at.and_then(|at| self.names.get(at).cloned()).unwrap_or_else(|| shown(*value))
    }
}

/// Without the name space, which a page does not need and which looks like an outside reference.
fn bare(svg: &str) -> String {
    svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1)
}

/// With a title and a description for who does not see it.
fn named(svg: &str, id: &str, title: &str, about: &str) -> String {
    let svg = bare(svg);
    let Some((head, rest)) = svg.split_once('>') else { return svg };
    let (title, about) = (escaped(title), escaped(about));
    format!(
        "{head} role=\"img\" aria-labelledby=\"{id}-title {id}-about\">\
         <title id=\"{id}-title\">{title}</title><desc id=\"{id}-about\">{about}</desc>{rest}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Line, Point};

    #[test]
    fn a_picture_stands_alone_and_names_its_lines() {
        let spec =
            r#"{"title": "tps < 95 %", "kind": "lines", "x": "n", "y": ["tps"], "x_title": "n", "y_title": "tps"}"#;
        let spec: ChartSpec = serde_json::from_str(spec).unwrap();
        let line = |name: &str| Line {
            name: name.to_owned(),
            points: vec![
                Point { label: "1".to_owned(), at: Some((1.0, 5.0)) },
                Point { label: "2".to_owned(), at: Some((2.0, 7.0)) },
            ],
        };
        let plot = Plot { lines: vec![line("journal"), line("a & b")], unplaced: 0 };
        let text = picture(&spec, &plot).unwrap();
        assert_eq!(text.matches("xmlns=").count(), 1);
        assert_eq!(text.matches("<svg ").count(), text.matches("</svg>").count());
        assert_eq!(text.matches("<svg ").count(), 4, "the picture, the chart, two swatches");
        for named in ["tps &lt; 95 %", ">journal<", ">a &amp; b<"] {
            assert!(text.contains(named), "{named}");
        }
        assert_eq!(picture(&spec, &Plot::default()).unwrap(), "");
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(rounds(0.0, 105.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(rounds(0.0, 1_400.0).len(), 8);
        assert_eq!(decades(0.9, 120.0), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(decades(1.0, 1_000.0), [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0]);
        for (from, to) in [(1e-9, 1e9), (0.3, 0.4), (1.0, 1.1)] {
            assert!(decades(from, to).len() <= TICKS_MAX + 2, "{from} {to}");
        }
    }

    #[test]
    fn an_axis_without_values_is_none_and_one_value_has_a_range() {
        assert_eq!(Axis::over(std::iter::empty(), false), None);
        for value in [0.0, 7.0, -3.0] {
            let axis = Axis::over([value].into_iter(), false).unwrap();
            assert!(axis.to > axis.from && !axis.ticks.is_empty(), "{axis:?}");
            assert!((0..=100).contains(&axis.map(&value, (0, 100))), "{axis:?}");
        }
        let log = Axis::over([10.0].into_iter(), true).unwrap();
        assert_eq!((log.map(&10.0, (0, 100)), log.ticks), (50, vec![10.0]));
    }
}
