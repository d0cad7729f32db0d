package dispatch

import (
	"maps"
	"sync"
	"time"
)

const (
	// usersFor is how long a tenant counts as one that uses a model.
	usersFor = 24 * time.Hour
	// maxUsedModels and maxModelUsers bound the models and the users of each that are remembered.
	maxUsedModels, maxModelUsers = 1000, 50
)

// modelUsers remembers which tenants have lately had which models used by this hub. The zero value is
// empty.
type modelUsers struct {
	mu   sync.Mutex
	last map[string]map[string]time.Time // by model and tenant
}

// note notes a run of a tenant.
func (u *modelUsers) note(tenant string, models []string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, model := range models {
		if u.last[model] == nil {
			if u.last == nil || len(u.last) >= maxUsedModels {
				u.last = map[string]map[string]time.Time{} // those in use are soon noted again
			}
			u.last[model] = map[string]time.Time{}
		}
		users := u.last[model]
		if _, known := users[tenant]; !known && len(users) >= maxModelUsers {
			forget(users, now)
		}
		if _, known := users[tenant]; known || len(users) < maxModelUsers {
			users[tenant] = now
		}
	}
}

// count returns how many tenants use a model.
func (u *modelUsers) count(model string, now time.Time) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	forget(u.last[model], now)
	return len(u.last[model])
}

func forget(users map[string]time.Time, now time.Time) {
	maps.DeleteFunc(users, func(_ string, last time.Time) bool { return now.Sub(last) > usersFor })
}

// ModelUsers returns how many tenants have had this hub use a model in the last day, at least: other
// hubs count their own.
func (f *Forecasts) ModelUsers(model string) int { return f.users.count(model, time.Now()) }
