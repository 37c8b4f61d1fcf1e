//! The guarantee of a federated run, as text and as JSON.

use sordino::{
    Error,
    accounting::{ClipNorm, Delta, Guarantee, pld::GroupSize},
    own_loop::{Account, PrivacyStatus},
    report::{labelled, noise, protects, sampling, status},
    train::{
        Hint,
        format::{grouped, pair, rounded_up},
    },
};

/// The statement, with settings in braces.
pub(super) fn text(account: &Account, clipping_norm: ClipNorm) -> Result<Hint, Error> {
    let unfinished = if account.is_closed() { "" } else { "unfinished " };
    Ok(Hint::new(match account.privacy_status()? {
        PrivacyStatus::Private(guarantee) => format!(
            "This {unfinished}federated model satisfies {}-differential privacy.\n\n{}",
            pair(guarantee.epsilon, guarantee.delta),
            labelled(&lines(account, &guarantee, clipping_norm)?)
        ),
        PrivacyStatus::NotPrivate(why) => {
            format!(
                "This {unfinished}federated model is NOT PRIVATE.\n\n{}",
                labelled(&[("NOT PRIVATE", why)])
            )
        }
    }))
}

fn lines(
    account: &Account,
    guarantee: &Guarantee,
    clipping_norm: ClipNorm,
) -> Result<Vec<(&'static str, String)>, Error> {
    let unit = "one client's whole contribution";
    let mut lines = vec![
        ("epsilon", epsilon(account, guarantee)?),
        ("delta", delta(account, guarantee.delta)),
        ("protects", protects(guarantee.relation, GroupSize::ONE).replacen("one record", unit, 1)),
    ];
    if let Some(plan) = account.plan() {
        lines.extend([("sampling", sampling(plan)), ("noise", noise(plan))]);
    }
    let (charged, planned) = (grouped(account.charged()), grouped(account.steps()));
    lines.extend([
        ("clipping", format!("each update to norm {clipping_norm}; updates have equal weights")),
        ("accountant", format!("{}: {}", guarantee.accountant, guarantee.accountant.description())),
        ("status", status(guarantee)),
        ("clients", format!("{}; this number is public", grouped(account.records()))),
        ("rounds", if account.is_closed() { planned } else { format!("{charged} of {planned} charged") }),
        ("trusted", "the server, which receives the updates and knows which clients were sampled".to_owned()),
    ]);
    if account.is_in_memory() {
        let why =
            "in memory: the whole plan counts as spent from the first round on, even if training stops early";
        lines.push(("ledger", why.to_owned()));
    }
    Ok(lines)
}

/// Epsilon of the whole plan, and of the rounds so far if the run is not finished.
fn epsilon(account: &Account, guarantee: &Guarantee) -> Result<String, Error> {
    let whole = guarantee.epsilon.get();
    let weak = if whole > 10.0 { " (WEAK: an epsilon above 10 protects little)" } else { "" };
    let whole = format!("{}{weak}", rounded_up(whole));
    Ok(match epsilon_so_far(account)? {
        Some(so_far) if !account.is_closed() && !account.is_in_memory() => format!(
            "{whole} for the whole plan, whenever it stops ({} so far, valid only if the decision to stop did not depend on any output)",
            rounded_up(so_far)
        ),
        _ => whole,
    })
}

fn delta(account: &Account, delta: Delta) -> String {
    let clients = account.records();
    match delta.get() * clients as f64 >= 1.0 {
        true => format!(
            "{delta} (WEAK: above 1 / {} clients, publishing one whole client would be permitted)",
            grouped(clients)
        ),
        false => delta.to_string(),
    }
}

/// The epsilon of the rounds that were charged.
fn epsilon_so_far(account: &Account) -> Result<Option<f64>, Error> {
    Ok(match account.privacy_status_after(account.charged())? {
        PrivacyStatus::Private(guarantee) => Some(guarantee.epsilon.get()),
        PrivacyStatus::NotPrivate(_) => None,
    })
}

/// All details as one JSON object.
pub(super) fn json(account: &Account, clipping_norm: ClipNorm) -> Result<String, Error> {
    let (guarantee, why) = match account.privacy_status()? {
        PrivacyStatus::Private(guarantee) => (Some(guarantee), None),
        PrivacyStatus::NotPrivate(why) => (None, Some(why)),
    };
    let json = serde_json::json!({
        "private": guarantee.is_some(),
        "not_private_because": why,
        "epsilon": guarantee.map(|guarantee| guarantee.epsilon.get()),
        "epsilon_so_far": epsilon_so_far(account)?,
        "delta": guarantee.map(|guarantee| guarantee.delta.get()),
        "relation": guarantee.map(|guarantee| guarantee.relation.to_string()),
        "accountant": guarantee.map(|guarantee| guarantee.accountant.name()),
        "unit": "client",
        "clients": account.records(),
        "clipping_norm": clipping_norm.get(),
        "rounds": account.charged(),
        "planned_rounds": account.steps(),
        "finished": account.is_closed(),
    });
    Ok(json.to_string())
}
