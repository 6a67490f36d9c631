//! What callgrind wrote of a part that ran beneath it: how many instructions an operation took.

/// Whether the budgets are those of this build. Errors with how to make one of which they are: with the feature `serve` the compiler may inline
/// other functions, and the parts that need it have no budget.
pub(crate) fn has_budgets(has_serve: bool) -> Result<(), &'static str> {
    match has_serve {
        true => Err(
            "budgets are those of a build without features: cargo bench --no-default-features --bench micro -- --budgets",
        ),
        false => Ok(()),
    }
}

/// Instructions of each of so many operations, by what a child that has ended wrote to stderr. Errors with what is wrong: one that failed
/// has not done them all, and without a count above zero nothing was measured.
pub(crate) fn each(has_succeeded: bool, said: &str, operations: u64) -> Result<u64, String> {
    if !has_succeeded {
        return Err(format!("it failed: {said}"));
    }
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    match collected.and_then(|(_, number)| number.trim().parse::<u64>().ok()) {
        None => Err(format!("callgrind told no number: {said}")),
        Some(0) => Err(format!("no instruction was collected: {said}")),
        Some(instructions) => Ok(instructions / operations),
    }
}
