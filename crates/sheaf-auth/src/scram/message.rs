//! The messages of a login: attributes with one letter, divided by commas.

/// The first message of a client, split.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFirst<'a> {
    /// `n,,` or `y,,`: no channel binding.
    pub gs2_header: &'a str,
    /// What follows the header.
    pub bare: &'a str,
    /// The decoded name.
    pub user: String,
    /// The client's nonce.
    pub nonce: &'a str,
}

/// The last message of a client, split.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFinal<'a> {
    /// What precedes `,p=`.
    pub without_proof: &'a str,
    /// `c`: the header in base64.
    pub binding: &'a str,
    /// Both nonces.
    pub nonce: &'a str,
    /// `p`, in base64.
    pub proof: &'a str,
}

/// Splits the client's first message; `None` if it is malformed.
pub(super) fn client_first(text: &str) -> Option<ClientFirst<'_>> {
    // `p=` asks for channel binding, which the server does not offer.
    let rest = text.strip_prefix("n,").or(text.strip_prefix("y,"))?;
    let (authorization, bare) = rest.split_once(',')?;
    let mut fields = bare.split(',');
    let user = decode_name(fields.next()?.strip_prefix("n=")?)?;
    // To act as another user is not possible.
    let is_own = match authorization.strip_prefix("a=") {
        Some(name) => decode_name(name)? == user,
        None => authorization.is_empty(),
    };
    let nonce = fields.next()?.strip_prefix("r=")?;
    let is_wrong = user.is_empty() || nonce.is_empty() || !is_own;
    (!is_wrong).then_some(ClientFirst {
        gs2_header: &text[..text.len() - bare.len()],
        bare,
        user,
        nonce,
    })
}

/// Splits the client's last message; `None` if it is malformed.
pub(super) fn client_final(text: &str) -> Option<ClientFinal<'_>> {
    let (without_proof, proof) = text.rsplit_once(",p=")?;
    let mut fields = without_proof.split(',');
    Some(ClientFinal {
        without_proof,
        binding: fields.next()?.strip_prefix("c=")?,
        nonce: fields.next()?.strip_prefix("r=")?,
        proof,
    })
}

/// `=2C` is a comma and `=3D` an equals sign; other uses of `=` are errors.
fn decode_name(text: &str) -> Option<String> {
    let mut name = String::with_capacity(text.len());
    let mut parts = text.split('=');
    name.push_str(parts.next()?);
    for part in parts {
        let (sign, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return None,
        };
        name.push(sign);
        name.push_str(rest);
    }
    Some(name)
}

/// The reverse of [`decode_name`].
pub(super) fn encode_name(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_messages() {
        let first = client_first("n,,n=a=2Cb=3Dc,r=xyz,e=1").unwrap();
        assert_eq!((first.user.as_str(), first.nonce), ("a,b=c", "xyz"));
        assert_eq!(
            (first.gs2_header, first.bare),
            ("n,,", "n=a=2Cb=3Dc,r=xyz,e=1")
        );
        assert_eq!(encode_name("a,b=c"), "a=2Cb=3Dc");
        assert!(client_first("n,a=u,n=u,r=x").is_some());
        for wrong in [
            "",
            "n",
            "n,",
            "n,,",
            "n,,n=",
            "n,,n=u",
            "n,,n=u,r=",
            "n,,r=x,n=u",
            "n,,n=,r=x",
            "p=tls-unique,,n=u,r=x",
            "n,a=other,n=u,r=x",
            "n,,n=u=2,r=x",
            "n,,n=u=41,r=x",
            "n,,m=1,n=u,r=x",
            "x,,n=u,r=x",
        ] {
            assert_eq!(client_first(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn final_messages() {
        let last = client_final("c=biws,r=abc,p=cHJvb2Y=").unwrap();
        assert_eq!(
            (last.binding, last.nonce, last.proof),
            ("biws", "abc", "cHJvb2Y=")
        );
        assert_eq!(last.without_proof, "c=biws,r=abc");
        for wrong in [
            "",
            "c=biws",
            "c=biws,r=abc",
            "r=abc,c=biws,p=x",
            "c=biws,p=x",
        ] {
            assert_eq!(client_final(wrong), None, "{wrong}");
        }
    }
}
