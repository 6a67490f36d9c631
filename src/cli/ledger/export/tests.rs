//! Exports of providers as they come: CSV and JSON, with the columns that each calls otherwise.

use super::*;

fn usage_of(prompt: u64, completion: u64) -> Usage {
    usage(Ok(prompt), Ok(completion)).unwrap()
}

/// The rows of an export as (line, id, prompt, completion), or what is said about it. It is read in pieces of all sizes.
fn rows(text: impl AsRef<[u8]>) -> Result<Vec<(u64, String, u64, u64)>, String> {
    let once = |piece: usize| {
        let mut rows = Vec::new();
        let input = std::io::BufReader::with_capacity(piece, text.as_ref());
        read(input, |row| {
            let Usage { prompt, completion } = row.usage;
            rows.push((row.line, row.id, prompt.0, completion.0));
            Ok(())
        })
        .map(|()| rows)
        .map_err(|error| match error {
            ExportError::Line { line, mistake } => format!("{line}: {mistake}"),
            ExportError::Read(error) => panic!("{error}"),
        })
    };
    let whole = once(1 << 16);
    for piece in [1, 2, 3, 7] {
        assert_eq!(once(piece), whole);
    }
    whole
}

fn check(text: impl AsRef<[u8]>, expected: &[(u64, &str, u64, u64)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(line, id, prompt, completion)| (*line, (*id).to_owned(), *prompt, *completion))
        .collect();
    assert_eq!(rows(text), Ok(expected));
}

fn refused(text: impl AsRef<[u8]>, expected: &str) {
    let text = text.as_ref();
    let said = rows(text).unwrap_err();
    assert!(
        said.contains(expected),
        "{said:?} for {:?}",
        String::from_utf8_lossy(text)
    );
}

#[test]
fn csv_columns_are_found_by_name() {
    check("id,prompt,completion\na,1,2\nb,3,4", &[(2, "a", 1, 2), (3, "b", 3, 4)]);
    check(
        "\u{feff}date,Output Tokens,GENERATION_ID,cost,input-tokens\r\n\r\n2026,2, a ,0.1, 1 \r\n",
        &[(3, "a", 1, 2)],
    );
    for (id, prompt, completion) in [
        ("request_id", "prompt_tokens", "completion_tokens"),
        ("completion_id", "tokens_prompt", "tokens_completion"),
        ("generation_id", "native_tokens_prompt", "native_tokens_completion"),
    ] {
        check(format!("{id},{prompt},{completion}\na,1,2\n"), &[(2, "a", 1, 2)]);
        check(
            format!("{{\"{id}\":\"a\",\"{prompt}\":1,\"{completion}\":2}}"),
            &[(1, "a", 1, 2)],
        );
    }
    check("id,prompt,completion\n", &[]);
}

#[test]
fn quoted_cells_may_hold_commas_quotes_and_lines() {
    check(
        "note,\"id\",prompt,completion\n\"a, \"\"b\"\"\",\"x,1\",\"1\",2\r\n\"two\nlines\n\",y,3,4\n\"\",\"z\"\"\",5,6\n",
        &[(2, "x,1", 1, 2), (3, "y", 3, 4), (6, "z\"", 5, 6)],
    );
}

#[test]
fn broken_quotes_swallow_no_rows() {
    let header = "id,prompt,completion,note\n";
    refused(
        format!("{header}a,1,2,\"x\nb,1,2,y\n"),
        "2: a quote opens in this row and never closes",
    );
    refused(
        format!("{header}a,1,2,\"x\nb,1,2,\"y\"\nc,1,2,z\n"),
        "3: a quoted cell goes on behind its closing quote",
    );
    refused(format!("{header}a,1,2,5\" pipe\n"), "2: a quote stands in a cell");
    refused(
        format!("{header}a,1,2,x\rb,1,2,y\n"),
        "2: a carriage return stands within the row",
    );
}

#[test]
fn rows_that_cannot_be_read_are_errors_with_their_line() {
    let header = "id,prompt,completion\na,1,2\n";
    for (row, expected) in [
        ("b,1", "3: the row has another number of cells (2) than the header (3)"),
        ("b,1,2,", "3: the row has another number of cells (4)"),
        ("b,,2", "3: the prompt tokens are not a whole number"),
        ("b,1,-2", "3: the completion tokens are not a whole number"),
        ("b,1,2.0", "3: the completion tokens"),
        ("b,+1,2", "3: the prompt tokens"),
        ("b,1,99999999999999999999", "3: the completion tokens"),
        (" ,1,2", "3: the id is empty"),
        ("id,prompt,completion", "3: the header stands here again"),
    ] {
        refused(format!("{header}{row}\nc,1,2\n"), expected);
        refused(format!("{header}{row}"), expected);
    }
    refused(
        format!("{header}{},1,2", "i".repeat(257)),
        "3: the id is longer than 256 bytes",
    );
    refused([header.as_bytes(), b"\xff,1,2\n"].concat(), "3: the row is not UTF-8");
    refused(
        [b"\xff\xfe".as_slice(), header.as_bytes()].concat(),
        "1: the row is not UTF-8",
    );
    let long = format!("{header}b,1,{}", "2".repeat(1 << 20));
    let said = read(long.as_bytes(), |_| Ok(())).unwrap_err();
    assert_eq!(said.to_string(), "the row is longer than 1048576 bytes");
    let long = format!("{header}b,1,\"{}", "2\n".repeat(1 << 20));
    let said = read(long.as_bytes(), |_| Ok(())).unwrap_err();
    assert_eq!(said.to_string(), "the row is longer than 1048576 bytes");
}

#[test]
fn a_header_names_each_column_once() {
    for (text, expected) in [
        ("", "1: the export is empty"),
        ("\u{feff} \n\r\n", "2: the export is empty"),
        (
            "a,1,2\n",
            "1: no column is named id, request_id, completion_id, generation_id",
        ),
        (
            "id,prompt\na,1\n",
            "1: no column is named completion, completion_tokens",
        ),
        ("id;prompt;completion\na;1;2\n", "1: no column is named id"),
        (
            "id,prompt,completion,prompt\n",
            "1: prompt and prompt both say the prompt: leave one",
        ),
        (
            "id,prompt,request_id,completion\n",
            "1: id and request_id both say the id",
        ),
        (
            "id,prompt,Prompt Tokens,completion\n",
            "1: prompt and Prompt Tokens both say the prompt",
        ),
    ] {
        refused(text, expected);
    }
    check("id,note,prompt,note,completion\na,x,1,y,2\n", &[(2, "a", 1, 2)]);
}

#[test]
fn json_lines_are_found_by_content() {
    check(
        "\u{feff}\n {\"id\":\"a\",\"usage\":{\"id\":1},\"prompt\":1,\"completion\":\"2\"}\r\n\n{\"output_tokens\":4,\"id\":\"b\\u0020\",\"input_tokens\":3}",
        &[(2, "a", 1, 2), (4, "b", 3, 4)],
    );
    let good = "{\"id\":\"a\",\"prompt\":1,\"completion\":2}\n";
    for (row, expected) in [
        ("{\"id\":\"a\",\"prompt\":1", "2: not a JSON object (EOF while parsing"),
        (
            "{\"id\":\"a\",\"prompt\":1,\"completion\":2}{}",
            "2: not a JSON object (trailing characters at column",
        ),
        ("a,1,2", "2: not a JSON object (expected value at column 1)"),
        ("[1]", "2: invalid type: sequence, expected an object"),
        (
            "{\"id\":\"a\",\"prompt\":1}",
            "2: no field is named completion, completion_tokens",
        ),
        (
            "{\"id\":5,\"prompt\":1,\"completion\":2}",
            "2: invalid type: integer `5`, expected a string",
        ),
        ("{\"id\":\"\",\"prompt\":1,\"completion\":2}", "2: the id is empty"),
        (
            "{\"id\":\"a\",\"prompt\":null,\"completion\":2}",
            "2: the prompt tokens are not a whole number",
        ),
        (
            "{\"id\":\"a\",\"prompt\":1,\"completion\":2.5}",
            "2: the completion tokens are not a whole number",
        ),
        (
            "{\"id\":\"a\",\"prompt\":-1,\"completion\":2}",
            "2: the prompt tokens are not a whole number",
        ),
        (
            "{\"id\":\"a\",\"prompt\":\"x\",\"completion\":2}",
            "2: the prompt tokens are not a whole number",
        ),
        (
            "{\"id\":\"a\",\"prompt\":1,\"completion\":2,\"prompt\":1}",
            "2: prompt and prompt both say the prompt",
        ),
        (
            "{\"id\":\"a\",\"request_id\":\"a\",\"prompt\":1,\"completion\":2}",
            "2: id and request_id both say the id",
        ),
    ] {
        refused(format!("{good}{row}\n{good}"), expected);
    }
    refused(format!("[{good}]"), "1: a JSON array begins here");
}

#[test]
fn what_each_row_is_taken_for_may_refuse_it() {
    let said = read("id,prompt,completion\na,1,2\nb,1,2\n".as_bytes(), |row| {
        match row.id.as_str() {
            "a" => {
                assert_eq!(row.usage, usage_of(1, 2));
                Ok(())
            }
            _ => Err("enough".into()),
        }
    });
    assert!(matches!(said, Err(ExportError::Line { line: 3, mistake }) if mistake == "enough"));
}
