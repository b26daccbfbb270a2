//! Quantiles out of a histogram in the text format of Prometheus.

/// The values below which these shares of the observations lie, interpolated within their buckets.
pub(super) fn quantiles<const N: usize>(page: &str, name: &str, shares: [f64; N]) -> Option<[f64; N]> {
    let mut buckets = buckets(page, name);
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total = buckets.last()?.1;
    if total == 0.0 {
        return None;
    }
    Some(shares.map(|share| quantile(&buckets, share * total)))
}

/// Upper bounds and how many observations lie at or below each.
fn buckets(page: &str, name: &str) -> Vec<(f64, f64)> {
    let start = format!("{name}_bucket{{");
    let line = |line: &str| {
        let rest = line.strip_prefix(&start)?;
        let (_, rest) = rest.split_once("le=\"")?;
        let (bound, rest) = rest.split_once('"')?;
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
        Some((bound, rest.rsplit(' ').next()?.parse().ok()?))
    };
    page.lines().filter_map(line).collect()
}

fn quantile(buckets: &[(f64, f64)], rank: f64) -> f64 {
    let (mut below, mut counted) = (0.0, 0.0);
    for (bound, count) in buckets {
        if *count >= rank {
            // Of the last bucket only its lower bound is known.
            let width = if bound.is_finite() { bound - below } else { 0.0 };
            return below + width * ((rank - counted) / (count - counted).max(1.0)).clamp(0.0, 1.0);
        }
        (below, counted) = (*bound, *count);
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_their_buckets() {
        let page = "t_bucket{le=\"0.001\"} 50\nt_bucket{le=\"0.002\"} 90\nt_bucket{le=\"0.01\"} 100\nt_bucket{le=\"+Inf\"} 100\n";
        let [half, most, all] = quantiles(page, "t", [0.5, 0.9, 0.99]).unwrap();
        assert_eq!((half, most), (0.001, 0.002));
        assert!(all > 0.002 && all < 0.01, "{all}");
        assert_eq!(quantiles("", "t", [0.5]), None);
    }
}
