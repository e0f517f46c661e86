//! What is printed, written and drawn: [`Report`].

use crate::Error;
use comfy_table::{CellAlignment, Table, presets};
use idem_benches::chart::{self, Axis, Line};
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;
use std::path::Path;

/// The figures of a run.
#[derive(Serialize)]
pub(crate) struct Report {
    /// What it ran on, and with what.
    machine: Vec<String>,
    options: Value,
    results: Map<String, Value>,
    verdicts: Vec<Verdict>,
    /// What a reader has to know beside the figures.
    notes: Vec<String>,
    #[serde(skip)]
    tables: Vec<(String, Table)>,
    #[serde(skip)]
    charts: Vec<Chart>,
}

/// Whether something that was to be shown holds.
#[derive(Serialize)]
struct Verdict {
    claim: String,
    figure: f64,
    bound: Bound,
    holds: bool,
}

/// What a figure is held against.
#[derive(Serialize, Clone, Copy, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// Lines to draw.
pub(crate) struct Chart {
    /// The file's name without its ending.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) across: Axis,
    pub(crate) up: Axis,
    pub(crate) lines: Vec<Line>,
}

impl Report {
    pub(crate) fn new(options: &impl Serialize, machine: Vec<String>) -> Self {
        let options = serde_json::to_value(options).unwrap_or_default();
        let (results, verdicts, notes) = (Map::new(), Vec::new(), Vec::new());
        Self { machine, options, results, verdicts, notes, tables: Vec::new(), charts: Vec::new() }
    }

    pub(crate) fn machine(&self) -> &[String] {
        &self.machine
    }

    /// Figures for the file.
    pub(crate) fn result(&mut self, name: &str, figures: &impl Serialize) -> Result<(), Error> {
        self.results.insert(name.to_owned(), serde_json::to_value(figures)?);
        Ok(())
    }

    /// A table to print. All but its first columns, `names` of them, are figures.
    pub(crate) fn table(&mut self, title: &str, names: usize, header: &[&str], rows: Vec<Vec<String>>) {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(header.iter().copied());
        table.add_rows(rows);
        for column in table.column_iter_mut().skip(names) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        self.tables.push((title.to_owned(), table));
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Says whether `figure` keeps to its bound. One that is not a number does not.
    pub(crate) fn verdict(&mut self, claim: impl Into<String>, figure: f64, bound: Bound) {
        let holds = match bound {
            Bound::AtLeast(bound) => figure >= bound,
            Bound::AtMost(bound) => figure <= bound,
        };
        self.verdicts.push(Verdict { claim: claim.into(), figure, bound, holds });
    }

    pub(crate) fn chart(&mut self, chart: Chart) {
        self.charts.push(chart);
    }

    pub(crate) fn holds(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.holds)
    }

    pub(crate) fn write(&self, file: &Path) -> Result<(), Error> {
        Ok(std::fs::write(file, serde_json::to_string_pretty(self)? + "\n")?)
    }

    pub(crate) fn draw(&self, folder: &Path) -> Result<(), Error> {
        for Chart { name, title, across, up, lines } in &self.charts {
            chart::lines(&folder.join(name).with_extension("svg"), title, across, up, lines)?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, table) in &self.tables {
            writeln!(f, "\n{title}\n\n{table}")?;
        }
        writeln!(f)?;
        for note in &self.notes {
            writeln!(f, "Note: {note}.")?;
        }
        for Verdict { claim, figure, bound, holds } in &self.verdicts {
            let bound = match bound {
                Bound::AtLeast(bound) => format!("at least {}", chart::number(*bound)),
                Bound::AtMost(bound) => format!("at most {}", chart::number(*bound)),
            };
            let holds = if *holds { "HOLDS" } else { "DOES NOT HOLD" };
            writeln!(f, "{holds}: {claim}: {}, {bound} wanted.", chart::number(*figure))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_holds_within_its_bound_only() {
        let holds = |figure, bound| {
            let mut report = Report::new(&(), Vec::new());
            report.verdict("it", figure, bound);
            report.holds()
        };
        assert!(holds(0.7, Bound::AtLeast(0.7)) && holds(2.0, Bound::AtMost(2.0)));
        assert!(!holds(0.69, Bound::AtLeast(0.7)) && !holds(2.1, Bound::AtMost(2.0)));
        assert!(!holds(f64::NAN, Bound::AtLeast(0.0)) && !holds(f64::NAN, Bound::AtMost(9.0)));
    }
}
