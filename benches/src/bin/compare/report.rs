//! What is printed, and what is written: [`Report`].

use crate::Error;
use comfy_table::{CellAlignment, Table, presets};
use idem_benches::chart::{self, Axis, Line};
use serde::Serialize;
use std::path::Path;

/// One comparison at one number of callers. Rates are calls in a second, times are microseconds, and each figure is the
/// median of its rounds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) against: String,
    pub(crate) callers: usize,
    pub(crate) other_callers: usize,
    pub(crate) ours: f64,
    pub(crate) other: f64,
    pub(crate) ratio: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) other_p50: f64,
    pub(crate) other_p99: f64,
    pub(crate) ours_rounds: Vec<f64>,
    pub(crate) other_rounds: Vec<f64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// What it ran on, and with what.
    pub(crate) machine: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

impl Report {
    pub(crate) fn write(&self, path: &Path) -> Result<(), Error> {
        Ok(std::fs::write(path, serde_json::to_string_pretty(self)? + "\n")?)
    }

    /// Draws a chart of each workload with a line for each side, over the callers.
    pub(crate) fn draw(&self, folder: &Path) -> Result<(), Error> {
        for rows in self.rows.chunk_by(|one, next| one.name == next.name) {
            let Some(first) = rows.first() else { continue };
            let points = |figure: fn(&Row) -> f64, rows: &[Row]| -> Vec<_> {
                rows.iter().map(|row| (row.callers as f64, figure(row))).collect()
            };
            let sides: Vec<&[Row]> = rows.chunk_by(|one, next| one.against == next.against).collect();
            let ours = sides.first().map(|rows| Line::new("idem", points(|row| row.ours, rows)));
            let theirs = sides.iter().map(|rows| {
                let best = rows.iter().any(|row| row.other_callers != row.callers);
                let name = if best { format!("{}, its best", rows[0].against) } else { rows[0].against.clone() };
                Line::new(name, points(|row| row.other, rows))
            });
            let lines: Vec<_> = ours.into_iter().chain(theirs).collect();
            let file = folder.join(first.name.replace(' ', "-")).with_extension("svg");
            let (across, up) = (Axis::logarithmic("callers"), Axis::logarithmic("calls a second"));
            chart::lines(&file, &first.name, &across, &up, &lines)?;
        }
        Ok(())
    }

    pub(crate) fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header([
            "name",
            "against",
            "callers",
            "ours/s",
            "other/s",
            "ratio",
            "p50 us",
            "p99 us",
            "its p99 us",
        ]);
        for row in &self.rows {
            let against = if row.other_callers == row.callers {
                row.against.clone()
            } else {
                format!("{}, {} clients", row.against, row.other_callers)
            };
            table.add_row([
                row.name.clone(),
                against,
                row.callers.to_string(),
                format!("{:.0}", row.ours),
                format!("{:.0}", row.other),
                format!("{:.2}", row.ratio),
                format!("{:.0}", row.p50),
                format!("{:.0}", row.p99),
                if row.other_p99.is_nan() { String::new() } else { format!("{:.0}", row.other_p99) },
            ]);
        }
        for number in 2..9 {
            if let Some(column) = table.column_mut(number) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

/// To four digits: no figure here has more.
pub(crate) fn round(figure: f64) -> f64 {
    if figure == 0.0 || !figure.is_finite() {
        return figure;
    }
    let scale = 10_f64.powi(3 - figure.abs().log10().floor() as i32);
    (figure * scale).round() / scale
}
