//! Tokens: what a worker holds for a lease, signed so that a forgery is refused without a look-up (rule C13).
//!
//! Owns the byte form (version, task, run, epoch, signature), its text form (base64url, unpadded) and the key.
//! Knows nothing of where the key is kept or whether a lease still exists.
//!
//! **Invariants**: the length is checked before anything else; reading never panics; signatures are compared in
//! constant time; the key shows in no `Debug`.

use crate::id::{Epoch, LeaseId, Run, TaskId};
use crate::wire::TokenText;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// The version of the byte form that is written and read here.
pub const TOKEN_VERSION: u8 = 1;

/// The bytes that are signed: version, task, run and epoch, integers in big-endian order.
const SIGNED: usize = 1 + 8 + 4 + 8;
/// The bytes of the signature: HMAC-SHA256 cut to 128 bits.
const SIGNATURE: usize = 16;
/// A whole token in bytes.
const BYTES: usize = SIGNED + SIGNATURE;

/// The length of every token's text, in bytes: 37 bytes in base64url without padding.
pub const TOKEN_TEXT_LEN: usize = (BYTES * 4).div_ceil(3);

/// The key that signs tokens: 32 bytes made with the database, so that a token survives restarts and is valid at every
/// dispatcher of that database.
///
/// ```
/// use dispatcher_core::id::{Epoch, LeaseId, Run, TaskId};
/// use dispatcher_core::token::TokenKey;
///
/// let key = TokenKey::new([7; 32]);
/// let lease = LeaseId { task: TaskId(42), run: Run(1), epoch: Epoch(3) };
/// let token = key.sign(lease);
/// assert_eq!(key.read(&token), Ok(lease));
/// assert!(TokenKey::new([8; 32]).read(&token).is_err());
/// ```
#[derive(Clone)]
pub struct TokenKey([u8; 32]);

/// Why a token is not one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Its length is not that of a token.
    #[error("the token has {0} bytes instead of {TOKEN_TEXT_LEN}")]
    Length(usize),
    /// It is not base64url without padding.
    #[error("the token is not base64url")]
    Encoding,
    /// Another version of the byte form.
    #[error("the token has version {0}, and {TOKEN_VERSION} is read here")]
    Version(u8),
    /// It was not signed with this key.
    #[error("the token was not signed here")]
    Signature,
}

/// What a token says, before or after it is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token {
    version: u8,
    lease: LeaseId,
}

impl Token {
    fn to_bytes(self) -> [u8; SIGNED] {
        let mut bytes = [0; SIGNED];
        bytes[0] = self.version;
        bytes[1..9].copy_from_slice(&self.lease.task.0.to_be_bytes());
        bytes[9..13].copy_from_slice(&self.lease.run.0.to_be_bytes());
        bytes[13..21].copy_from_slice(&self.lease.epoch.0.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; SIGNED]) -> Self {
        let [version, t0, t1, t2, t3, t4, t5, t6, t7, r0, r1, r2, r3, e0, e1, e2, e3, e4, e5, e6, e7] = *bytes;
        Self {
            version,
            lease: LeaseId {
                task: TaskId(i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7])),
                run: Run(u32::from_be_bytes([r0, r1, r2, r3])),
                epoch: Epoch(u64::from_be_bytes([e0, e1, e2, e3, e4, e5, e6, e7])),
            },
        }
    }
}

impl TokenKey {
    /// The key of these 32 bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The token of `lease`.
    #[must_use]
    pub fn sign(&self, lease: LeaseId) -> TokenText {
        let signed = Token { version: TOKEN_VERSION, lease }.to_bytes();
        let mut bytes = [0; BYTES];
        let (head, signature) = bytes.split_at_mut(SIGNED);
        head.copy_from_slice(&signed);
        signature.copy_from_slice(&self.mac(&signed).finalize().into_bytes()[..SIGNATURE]);
        TokenText(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The lease that `text` is the token of.
    ///
    /// # Errors
    /// [`TokenError`] for whatever this key did not sign. Nothing has been looked up by then (rule C13).
    pub fn read(&self, text: &TokenText) -> Result<LeaseId, TokenError> {
        if text.0.len() != TOKEN_TEXT_LEN {
            return Err(TokenError::Length(text.0.len()));
        }
        let mut bytes = [0; BYTES];
        match URL_SAFE_NO_PAD.decode_slice(&text.0, &mut bytes) {
            Ok(BYTES) => {}
            Ok(_) | Err(_) => return Err(TokenError::Encoding),
        }
        let Some((signed, signature)) = bytes.split_first_chunk::<SIGNED>() else {
            return Err(TokenError::Length(text.0.len()));
        };
        if signed[0] != TOKEN_VERSION {
            return Err(TokenError::Version(signed[0]));
        }
        self.mac(signed).verify_truncated_left(signature).map_err(|_| TokenError::Signature)?;
        Ok(Token::from_bytes(signed).lease)
    }

    fn mac(&self, signed: &[u8]) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length; the error cannot occur")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(signed);
        mac
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(…)")
    }
}

#[cfg(test)]
mod tests;
