//! What is refused of an entry of credit that an operator gives, and not of one that the gateway posts by itself.

use super::{CreditKind, CreditPost};
use crate::pure::money::Credits;

impl CreditPost {
    /// Checks the sign of a refund: above 0 it would add what it is to take. The gateway itself posts such a one where a refund of
    /// Stripe's came to nothing. Payments, and what takes what there is, are the gateway's own as well: what stands under Stripe's ids decides
    /// what its messages do.
    ///
    /// # Errors
    /// Says what was probably meant.
    pub fn check_given(&self) -> Result<(), String> {
        if self.is_payment || self.as_available {
            return Err("is_payment and as_available are the gateway's own, for what Stripe tells it".to_owned());
        }
        let amount = self.amount;
        match self.kind {
            CreditKind::Refund if amount > Credits::ZERO => Err(format!(
                "the amount of a refund is below 0, such as -{amount}, for it takes credit: a correction or a bonus gives some"
            )),
            CreditKind::TopUp | CreditKind::Bonus | CreditKind::Correction | CreditKind::Refund => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_given_a_refund_is_below_0() {
        let given = |kind, amount: &str| {
            let top_up = CreditPost::top_up("acme".parse().unwrap(), amount.parse().unwrap(), "R".to_owned());
            CreditPost { kind, ..top_up }.check_given()
        };
        let refused = given(CreditKind::Refund, "0.000000000001").unwrap_err();
        assert!(refused.contains("such as -0.000000000001,"), "{refused}");
        assert_eq!(given(CreditKind::Refund, "-20"), Ok(()));
        for kind in CreditKind::ALL.into_iter().filter(|kind| *kind != CreditKind::Refund) {
            assert_eq!(given(kind, "20"), Ok(()), "{kind}");
        }
    }

    #[test]
    fn what_stripe_tells_is_nobodys_to_give() {
        let top_up = CreditPost::top_up("acme".parse().unwrap(), "5".parse().unwrap(), "pi_1".to_owned());
        assert_eq!(top_up.check_given(), Ok(()));
        for (is_payment, as_available) in [(true, false), (false, true)] {
            let given = CreditPost {
                is_payment,
                as_available,
                ..top_up.clone()
            };
            let refused = given.check_given().unwrap_err();
            assert!(refused.contains("the gateway's own"), "{refused}");
        }
    }
}
