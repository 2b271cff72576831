//! Which coordinators' branches are being resolved here, and by whom: one connection for each node.
//!
//! Walk: [`Kv::claim`] gives a [`Claim`] or says that another has it · dropping it lets go. Nothing of it is durable:
//! connections do not outlive the process either.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use assent_ids::NodeId;

use crate::{Kv, KvError};

/// Coordinators that a store may serve at once. Whoever asks for more is refused, so that claims cannot eat memory.
pub const CLAIMS_MAX: u32 = 1_024;

pub(crate) type Claims = Arc<Mutex<BTreeSet<NodeId>>>;

/// The right to resolve one node's branches in this store, until it is dropped.
#[derive(Debug)]
pub struct Claim {
    node: NodeId,
    claims: Claims,
}

impl Claim {
    /// Whose branches.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.node);
    }
}

impl Kv {
    /// Takes the right to resolve a node's branches. Nothing else asks for it: a healthy client needs none.
    ///
    /// # Errors
    /// [`KvError::Claimed`] (`Conflict`) while another has it, `Busy` beyond [`CLAIMS_MAX`].
    pub fn claim(&self, node: NodeId) -> Result<Claim, KvError> {
        let mut claimed = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if claimed.contains(&node) {
            return Err(KvError::Claimed { node });
        }
        if u32::try_from(claimed.len()).map_or(true, |many| many >= CLAIMS_MAX) {
            return Err(KvError::Busy { what: "coordinators that resolve branches here", limit: CLAIMS_MAX.into() });
        }
        claimed.insert(node);
        Ok(Claim { node, claims: Arc::clone(&self.claims) })
    }
}
