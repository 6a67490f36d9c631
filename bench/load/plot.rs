//! The plots, as SVG: CPU bars of each part of a scenario, latency by percentile, memory of a soak.

use std::path::Path;

use plotters::prelude::*;

use crate::{common::Result, figures::Series, report::Report, statistics::Estimate, tally::Tally};

/// Writes the plots that the report has figures for into `out`.
pub(crate) fn write(report: &Report, out: &Path) -> Result<()> {
    let mut rest = &report.series[..];
    while let Some(Series { scenario, part, .. }) = rest.first() {
        let (series, others) = rest.split_at(rest.iter().position(|s| !s.is_of(scenario, part)).unwrap_or(rest.len()));
        let file = |kind: &str| out.join(format!("{kind}-{scenario}-{}.svg", part.replace(['/', ' '], "-")));
        let bars: Vec<(&Series, Estimate)> = series
            .iter()
            .filter_map(|s| Some((s, s.summary.as_ref()?.both_us?)))
            .collect();
        if !bars.is_empty() {
            cpu_bars(&file("cpu"), &format!("{scenario}, {part}"), &bars)?;
        }
        let curves: Vec<&Series> = series
            .iter()
            .filter(|s| s.summary.as_ref().is_some_and(|s| s.latency_us.is_some()))
            .collect();
        if !curves.is_empty() {
            latency(&file("latency"), &format!("{scenario}, {part}: latency"), &curves)?;
        }
        rest = others;
    }
    if !report.soak.is_empty() {
        memory(report, &out.join("soak.svg"))?;
    }
    Ok(())
}

/// Bars of the medians, with a line over the interval.
fn cpu_bars(file: &Path, title: &str, series: &[(&Series, Estimate)]) -> Result<()> {
    let unit = series.first().map_or("", |(series, _)| series.unit.name());
    let ends = |cpu: &Estimate| cpu.interval.unwrap_or([cpu.median; 2]);
    let highest = series.iter().map(|(_, cpu)| ends(cpu)[1]).fold(0.0, f64::max);
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let bars = f64::from(u32::try_from(series.len())?);
    let mut chart = ChartBuilder::on(&area)
        .caption(
            format!("{title}: CPU microseconds a {unit}, with the store"),
            ("sans-serif", 20),
        )
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(54)
        .build_cartesian_2d(0.0..bars, 0.0..highest.max(0.001) * 1.15)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_label_style(("sans-serif", 13))
        .draw()?;
    for (index, (series, cpu)) in series.iter().enumerate() {
        let left = f64::from(u32::try_from(index)?);
        let (middle, colour) = (left + 0.5, colour(&series.subject, index));
        let [low, high] = ends(cpu);
        chart.draw_series([
            Rectangle::new([(left + 0.15, 0.0), (left + 0.85, cpu.median)], colour.filled()),
            Rectangle::new([(middle - 0.004, low), (middle + 0.004, high)], BLACK.filled()),
        ])?;
        let ratio = series.summary.as_ref().and_then(|summary| summary.beside.first()?.both);
        let ratio = ratio.map_or_else(String::new, |ratio| format!(" ({:.2} x)", ratio.median));
        let (x, top) = chart.backend_coord(&(left + 0.15, high));
        area.draw(&Text::new(
            format!("{:.2}{ratio}", cpu.median),
            (x, top - 18),
            ("sans-serif", 14),
        ))?;
        let (x, bottom) = chart.backend_coord(&(left + 0.15, 0.0));
        area.draw(&Text::new(series.subject.clone(), (x, bottom + 8), ("sans-serif", 14)))?;
    }
    area.present()?;
    Ok(())
}

/// Latency over the share of requests that were slower, both on logarithmic axes.
fn latency(file: &Path, title: &str, series: &[&Series]) -> Result<()> {
    let points = |tally: &Tally| -> Vec<(f64, f64)> {
        let at = |nines: f64| tally.latency.value_at_quantile(1.0 - 10_f64.powf(-nines)) as f64 / 1000.0;
        // Beyond a tenth of a curve's last request there is nothing to show.
        let nines_max = (tally.latency.len() as f64).log10().min(NINES_MAX);
        (0..=200)
            .map(|step| nines_max * f64::from(step) / 200.0)
            .map(|nines| (nines, at(nines)))
            .collect()
    };
    let curves: Vec<(&str, Vec<(f64, f64)>)> = series.iter().map(|s| (s.subject.as_str(), points(&s.tally))).collect();
    let all = || curves.iter().flat_map(|(_, points)| points);
    let low = all().map(|(_, us)| *us).fold(f64::INFINITY, f64::min).max(1.0);
    let high = all().map(|(_, us)| *us).fold(low * 2.0, f64::max);
    let nines_max = all().map(|(nines, _)| *nines).fold(1.0, f64::max);
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..nines_max, (low * 0.8..high * 1.2).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("percentile")
        .y_desc("microseconds")
        .x_labels(6)
        .x_label_formatter(&|nines| percentile(*nines))
        .y_label_formatter(&|us| format!("{us:.0}"))
        .label_style(("sans-serif", 13))
        .draw()?;
    for (index, (subject, points)) in curves.iter().enumerate() {
        let colour = colour(subject, index);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(*subject)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 13))
        .draw()?;
    area.present()?;
    Ok(())
}

/// Memory over requests.
fn memory(report: &Report, file: &Path) -> Result<()> {
    let all = || report.soak.iter().flat_map(|soak| &soak.samples);
    let requests = all().map(|sample| sample.requests).max().unwrap_or(1) as f64;
    let mib = |kib: u64| kib as f64 / 1024.0;
    let highest = all().map(|sample| mib(sample.memory_kib)).fold(1.0, f64::max);
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("soak: memory", ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..requests, 0.0..highest * 1.2)?;
    let mesh_style = ("sans-serif", 13);
    chart
        .configure_mesh()
        .x_desc("requests")
        .y_desc("MiB")
        .label_style(mesh_style)
        .draw()?;
    for (index, soak) in report.soak.iter().enumerate() {
        let colour = colour(&soak.subject, index);
        let points = soak
            .samples
            .iter()
            .map(|sample| (sample.requests as f64, mib(sample.memory_kib)));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(soak.subject.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .label_font(mesh_style)
        .draw()?;
    area.present()?;
    Ok(())
}

/// `2` is p99: the axis counts nines.
fn percentile(nines: f64) -> String {
    let percent = 100.0 * (1.0 - 10_f64.powf(-nines));
    let text = format!("{percent:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The same subject has the same colour in all plots.
fn colour(subject: &str, index: usize) -> RGBColor {
    match subject {
        "baseline" => RGBColor(120, 120, 120),
        "baseline-jemalloc" => RGBColor(175, 175, 175),
        "embedded" => RGBColor(20, 110, 180),
        "redis" => RGBColor(200, 60, 50),
        "nginx" => RGBColor(40, 150, 70),
        "haproxy" => RGBColor(150, 100, 190),
        _ => [RGBColor(230, 150, 30), RGBColor(0, 150, 150)][index % 2],
    }
}

const SIZE: (u32, u32) = (860, 420);
const NINES_MAX: f64 = 5.0;
