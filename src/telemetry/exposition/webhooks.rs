//! Webhooks in the text that Prometheus reads.

use super::{Gauges, Page, counter, number, signed};

impl Page {
    pub(super) fn webhooks(&mut self, gauges: &Gauges) {
        let figures = gauges.deliveries;
        let [delivered, failed, given_up] = figures.results;
        let series = [("delivered", delivered), ("failed", failed), ("given_up", given_up)];
        let series = series.map(|(result, count)| counter(&[("result", result)], number(count)));
        let help =
            "Events sent to webhooks: delivered, failed (and sent again), or given up after three days or at a 410.";
        self.counters("tollgate_webhook_deliveries_total", help, series.into());
        let help = "Events that are still to be told to a webhook.";
        self.gauge("tollgate_webhook_events_open", help, number(figures.open));
        let help = "Age of the oldest event that is still to be told; 0 when there is none.";
        self.gauge(
            "tollgate_webhook_oldest_event_age_seconds",
            help,
            signed(figures.oldest_age_secs),
        );
        let help =
            "Events that were dropped in the ledger, seen by this process: too many were open, or they were too old.";
        let seen = figures.dropped.map_or(0, |(_, since)| since);
        self.counters(
            "tollgate_webhook_events_dropped_total",
            help,
            vec![counter(&[], number(seen))],
        );
    }
}
