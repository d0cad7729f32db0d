package stream

// place is whose a socket is: it counts for a tenant and for a party. A party
// is somebody who acts alone, as far as a hub can tell: a login, or a network
// address of those who do not log in.
type place struct{ tenant, network string }

func placeOf(id Ident) place { return place{tenant: id.Tenant, network: id.Network} }

// places are the sockets that are open or about to be. Its owner locks.
type places struct {
	all     int
	tenants map[string]int
	parties map[place]int
}

// take counts a socket of at most most sockets, and own of the tenant where
// that is not 0, or says why there is no place for it. The last eighth
// of all places is for parties that have less than a fair share: however many
// sockets one of them opens, others still find a place. A party that is alone
// may have all.
func (p *places) take(of place, most, own int) error {
	if p.all >= most {
		return ErrFull
	}
	if own > 0 && p.tenants[of.tenant] >= own {
		return ErrTenantFull
	}
	if p.all >= most-most/8 {
		parties := len(p.parties)
		if p.parties[of] == 0 {
			parties++
		}
		if p.parties[of] >= max(most/parties, 1) {
			return ErrFull
		}
	}
	if p.tenants == nil {
		p.tenants, p.parties = map[string]int{}, map[place]int{}
	}
	p.all++
	p.tenants[of.tenant]++
	p.parties[of]++
	return nil
}

// free gives a place back.
func (p *places) free(of place) {
	p.all--
	less(p.tenants, of.tenant)
	less(p.parties, of)
}

// less takes one off a count; what is zero is not kept.
func less[K comparable](counts map[K]int, k K) {
	if counts[k]--; counts[k] <= 0 {
		delete(counts, k)
	}
}
