//! The parameters of operations.

use crate::gateway::api::openapi::parts::{Parameter, path, query};

pub(super) const NAME: Parameter = path("name", ACCOUNT_NAME, "The account's name.");
pub(super) const KEY_ID: Parameter = path("id", ID_OF_KEY, "The key's id.");
pub(super) const OPERATOR_ID: Parameter = path(
    "id",
    r#"{"type":"string","pattern":"^op_[0-9a-f]{16}$"}"#,
    "The operator's id.",
);
pub(super) const OF_ACCOUNT: Parameter = query("account", ACCOUNT_NAME, "Whose.").required();
pub(super) const ACCOUNT: Parameter = query("account", ACCOUNT_NAME, "Only what is about this account.");
pub(super) const KEY: Parameter = query("key", ID_OF_KEY, "Only calls with the key of this id.");
pub(super) const MODEL: Parameter = query("model", r#"{"type":"string"}"#, "Only calls of the model with this id.");
pub(super) const CALL_ID: Parameter = query(
    "id",
    r#"{"type":"string","minLength":1,"maxLength":256}"#,
    "Only the call of this x-request-id, or of this id of its answer.",
);
pub(super) const SEARCH: Parameter = query(
    "search",
    r#"{"type":"string"}"#,
    "Only accounts with this text in their name, whatever the case.",
);
pub(super) const AFTER: Parameter = query("after", ACCOUNT_NAME, "What `next` of the page before says.");
pub(super) const BEFORE: Parameter = query(
    "before",
    r#"{"type":"string","pattern":"^[1-9][0-9]{0,14}$"}"#,
    "What `next` of the page before says.",
);
pub(super) const BEFORE_ENTRY: Parameter = query(
    "before",
    r#"{"type":"string","minLength":1,"maxLength":200}"#,
    "What `next` of the page before says.",
);
pub(super) const BEFORE_CALL: Parameter = query(
    "before",
    r#"{"type":"string","pattern":"^([0-9a-f]{120}|[0-9]{1,15}-[0-9]{1,15})$"}"#,
    "What `next` of the page before says.",
);
pub(super) const LIMIT_200: Parameter = limit(r#"{"type":"integer","minimum":1,"maximum":200,"default":50}"#);
pub(super) const LIMIT_1000: Parameter = limit(r#"{"type":"integer","minimum":1,"maximum":1000,"default":50}"#);
pub(super) const LIMIT_CALLS: Parameter = limit(r#"{"type":"integer","minimum":1,"maximum":1000,"default":20}"#);
pub(super) const FROM: Parameter = query(
    "from",
    DAY,
    "The first day of UTC. By default a statement begins with the month of its last day, and a sum with the first usage.",
);
pub(super) const TO: Parameter = query("to", DAY, "The last day of UTC; today by default.");
pub(super) const PERIOD: Parameter = query(
    "period",
    r#"{"enum":["today","7d","30d","all"]}"#,
    "Days of UTC, in place of from and to.",
);
pub(super) const GROUP_BY: Parameter = query(
    "group_by",
    r#"{"enum":["model","key","day","end_user"]}"#,
    "What `groups` are of.",
);
pub(super) const STATEMENT_FORMAT: Parameter =
    query("format", r#"{"enum":["json","csv"],"default":"json"}"#, "JSON or CSV.");

const fn limit(schema: &'static str) -> Parameter {
    query("limit", schema, "The most entries of one page.")
}

const ACCOUNT_NAME: &str = r##"{"$ref":"#/components/schemas/AccountName"}"##;
const ID_OF_KEY: &str = r##"{"$ref":"#/components/schemas/KeyId"}"##;
const DAY: &str = r##"{"$ref":"#/components/schemas/Day"}"##;
