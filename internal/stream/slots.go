package stream

// party identifies whoever opens a socket, within a tenant. As far as a hub can
// tell, it acts alone: it is a login, or the network address of clients that do not
// log in.
type party struct{ tenant, network string }

func partyOf(id Ident) party { return party{tenant: id.Tenant, network: id.Network} }

// slots counts the sockets that are open or about to be. Its owner locks it.
type slots struct {
	all     int
	tenants map[string]int
	parties map[party]int
}

// take reserves a slot for a socket, or returns why it cannot. most is the limit for all sockets,
// own the tenant's limit unless it is 0. The last eighth of all slots is for parties that have less
// than a fair share: however many sockets one party opens, others still find a slot. A party that
// is alone may use them all.
func (p *slots) take(of party, most, own int) error {
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
		p.tenants, p.parties = map[string]int{}, map[party]int{}
	}
	p.all++
	p.tenants[of.tenant]++
	p.parties[of]++
	return nil
}

// free releases a slot.
func (p *slots) free(of party) {
	p.all--
	less(p.tenants, of.tenant)
	less(p.parties, of)
}

// less decrements a count and removes it at zero.
func less[K comparable](counts map[K]int, k K) {
	if counts[k]--; counts[k] <= 0 {
		delete(counts, k)
	}
}
