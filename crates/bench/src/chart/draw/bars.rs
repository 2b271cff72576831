//! Bars that lie: a group for each value of a label, a bar for each figure, so that long names have room.

use plotters::chart::{ChartBuilder, ChartContext, LabelAreaPosition};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::drawing::{DrawingArea, IntoDrawingArea as _};
use plotters::element::Rectangle;
use plotters::prelude::{DrawingBackend, SVGBackend};
use plotters::style::{Color as _, IntoTextStyle as _};

use super::{Axis, Drawn, FONT, GRID, INK, SIZE, TICKS_MAX, about, colour, failed, named};
use crate::BenchError;
use crate::chart::Plot;
use crate::report::ChartSpec;

/// The share of a group's height that its bars take.
const FULL: f64 = 0.8;
/// Numbers under the axis, at most.
const SIDE_BY_SIDE_MAX: usize = 5;

/// The chart; empty where nothing can be drawn.
pub(super) fn svg(spec: &ChartSpec, plot: &Plot, id: &str) -> Result<String, BenchError> {
    let Some(values) = Axis::over(plot.places().map(|(_, value)| value), false) else { return Ok(String::new()) };
    let names = plot.labels();
    let count = u32::try_from(names.len()).unwrap_or(1);
    // The first group is at the top: places grow downwards from 0.
    let ticks = (0..count).map(|at| -f64::from(at)).collect();
    let groups = Axis { from: 0.5 - f64::from(count), to: 0.5, log: false, ticks, names };
    // Fewer numbers fit side by side than above each other.
    let step = values.ticks.len().div_ceil(SIDE_BY_SIDE_MAX).max(1);
    let values = Axis { ticks: values.ticks.iter().copied().step_by(step).collect(), ..values };
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    lay(&area, spec, plot, (values, groups)).map_err(failed)?;
    area.present().map_err(failed)?;
    drop(area);
    Ok(named(&text, id, &spec.title, &about(spec, plot)))
}

fn lay<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    spec: &ChartSpec,
    plot: &Plot,
    (values, groups): (Axis, Axis),
) -> Drawn<DB> {
    let longest = groups.names.iter().map(|name| name.chars().count()).max().unwrap_or(1);
    // Letters are about 0.55 of their size wide.
    let beside = (20 + 10 * u32::try_from(longest).unwrap_or(20)).min(220);
    let mut chart: ChartContext<'_, DB, Cartesian2d<Axis, Axis>> = ChartBuilder::on(area)
        .margin_top(10)
        .margin_right(40)
        .set_label_area_size(LabelAreaPosition::Left, beside)
        .set_label_area_size(LabelAreaPosition::Bottom, 56)
        .build_cartesian_2d(values, groups)?;
    let font = ("sans-serif", FONT).with_color(INK).into_text_style(area);
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(GRID)
        .max_light_lines(0)
        .disable_y_mesh()
        .axis_style(INK)
        .label_style(font.clone())
        .axis_desc_style(font)
        .x_labels(TICKS_MAX)
        .y_labels(TICKS_MAX)
        .x_desc(&spec.y_title)
        .draw()?;
    let count = f64::from(u32::try_from(plot.lines.len()).unwrap_or(1).max(1));
    for (number, line) in plot.lines.iter().enumerate() {
        let at = f64::from(u32::try_from(number).unwrap_or(0));
        for (group, value) in line.points.iter().filter_map(|point| point.at) {
            let top = FULL / 2.0 - group - at * FULL / count;
            let bar = Rectangle::new([(0.0, top), (value, top - FULL / count * 0.9)], colour(number).filled());
            chart.draw_series(std::iter::once(bar))?;
        }
    }
    Ok(())
}
