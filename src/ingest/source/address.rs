//! Which addresses a worker may connect to for somebody else: those of the public internet, and what the operator allows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// IANA's special-purpose registries (RFC 6890 and its successors): nothing that a public document lives at.
const PRIVATE_V4: &[(Ipv4Addr, u8)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // With the metadata services of clouds.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];
/// All that is public.
const PUBLIC_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// What is not, of it: protocol assignments and tunnels, documentation, 6to4.
const PRIVATE_V6: &[(Ipv6Addr, u8)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

pub fn may_connect(address: IpAddr, allowed: &[IpNet]) -> bool {
    // An IPv4 address in IPv6 is the IPv4 address.
    let address = address.to_canonical();
    allowed.iter().any(|network| network.contains(&address)) || is_public(address)
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !PRIVATE_V4.iter().any(|(network, bits)| is_in_v4(address, *network, *bits)),
        IpAddr::V6(address) => {
            is_in_v6(address, PUBLIC_V6.0, PUBLIC_V6.1)
                && !PRIVATE_V6.iter().any(|(network, bits)| is_in_v6(address, *network, *bits))
        }
    }
}

fn is_in_v4(address: Ipv4Addr, network: Ipv4Addr, bits: u8) -> bool {
    (u32::from(address) ^ u32::from(network)) >> (32 - bits) == 0
}

fn is_in_v6(address: Ipv6Addr, network: Ipv6Addr, bits: u8) -> bool {
    (u128::from(address) ^ u128::from(network)) >> (128 - bits) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_public_internet_is_reached_unless_it_is_allowed() {
        let public = ["1.1.1.1", "8.8.8.8", "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8"];
        let private = [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.31.255.255",
            "192.168.0.1",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
        ];
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for text in public {
            assert!(may_connect(address(text), &[]), "{text}");
        }
        for text in private {
            assert!(!may_connect(address(text), &[]), "{text}");
        }
        let allowed = ["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()];
        for text in ["10.1.2.3", "::ffff:10.1.2.3", "fd00:ec2::254", "1.1.1.1"] {
            assert!(may_connect(address(text), &allowed), "{text}");
        }
        assert!(!may_connect(address("10.2.0.1"), &allowed));
    }
}
