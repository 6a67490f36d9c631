//! The parameters of operations.

use super::parts::{Parameter, header, path, query};

pub(super) const PAGE: Parameter = query(
    "page",
    r#"{"type":"integer","minimum":1,"maximum":18446744073709551615,"default":1}"#,
    "The page.",
);
pub(super) const PER_PAGE: Parameter = query(
    "per_page",
    r#"{"type":"integer","minimum":1,"maximum":500,"default":24}"#,
    "Models on a page.",
);
pub(super) const SEARCH: Parameter = query(
    "search",
    r#"{"type":"string"}"#,
    "In id and name, in any case; the public list also searches the provider.",
);
pub(super) const PURPOSE: Parameter = query(
    "purpose",
    r##"{"$ref":"#/components/schemas/PurposeName"}"##,
    "Models that have the purpose.",
);
pub(super) const PERIOD: Parameter = query("period", r##"{"$ref":"#/components/schemas/Period"}"##, "Days of UTC.");
pub(super) const FROM: Parameter = query("from", DAY, "The first day of UTC, in place of a period.");
pub(super) const TO: Parameter = query(
    "to",
    DAY,
    "The last day of UTC, in place of a period; today by default.",
);
const DAY: &str = r##"{"$ref":"#/components/schemas/Day"}"##;
pub(super) const GROUP_BY: Parameter = query(
    "group_by",
    r##"{"$ref":"#/components/schemas/GroupBy"}"##,
    "What `groups` are of.",
);
pub(super) const CALL: Parameter = query(
    "id",
    r#"{"type":"string","minLength":1,"maxLength":256}"#,
    "The x-request-id of an answer (x-original-request-id of one that was given again), or the answer's own id.",
)
.required();
pub(super) const LIMIT: Parameter = query(
    "limit",
    r#"{"type":"integer","minimum":1,"maximum":1000,"default":20}"#,
    "The most calls of one page.",
);
pub(super) const BEFORE: Parameter = query(
    "before",
    r#"{"type":"string","pattern":"^([0-9a-f]{120}|[0-9]{1,15}-[0-9]{1,15})$"}"#,
    "What `next` of the page before says.",
);
pub(super) const OF_MODEL: Parameter = query("model", r#"{"type":"string"}"#, "Only calls of the model with this id.");
pub(super) const IDEMPOTENCY_KEY: Parameter = header(
    "idempotency-key",
    r#"{"type":"string","minLength":1,"maxLength":255,"pattern":"^[!-~]+$"}"#,
    "A call with the same key and body within 24 hours is not made again: it gets the first one's answer.",
);
pub(super) const ID: Parameter = path(
    "id",
    r#"{"type":"string","minLength":1}"#,
    "The model's id. Its slash may stand as it is.",
);
