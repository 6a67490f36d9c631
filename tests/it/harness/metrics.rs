//! A page of metrics, read as Prometheus reads it, with exact decimals.

use std::collections::BTreeMap;

use rust_decimal::Decimal;

/// The samples of a page.
#[derive(Debug)]
pub struct Metrics(Vec<Sample>);

#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: Decimal,
}

impl Metrics {
    /// Reads a page; every line must be a comment or a sample.
    pub fn read(page: &str) -> Metrics {
        let samples = page.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        Metrics(samples.map(sample).collect())
    }

    /// The sum of the samples of this name that carry these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Decimal {
        self.of(name, labels).map(|sample| sample.value).sum()
    }

    /// The values of one label, over the samples of this name.
    pub fn values(&self, name: &str, label: &str) -> Vec<&str> {
        let named = self.0.iter().filter(|sample| sample.name == name);
        named.map(|sample| sample.labels[label].as_str()).collect()
    }

    fn of<'a>(&'a self, name: &'a str, labels: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |sample| {
            let carries = |(label, value): &(&str, &str)| sample.labels.get(*label).is_some_and(|is| is == value);
            sample.name == name && labels.iter().all(carries)
        })
    }
}

/// `name{label="value",…} number`.
fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let labels = labels.strip_suffix('}').unwrap().split_terminator("\",");
    let labels = labels.map(|label| {
        let (name, value) = label.split_once("=\"").unwrap();
        (name.to_owned(), value.trim_end_matches('"').to_owned())
    });
    let value = value.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
    Sample {
        name: name.to_owned(),
        labels: labels.collect(),
        value,
    }
}
