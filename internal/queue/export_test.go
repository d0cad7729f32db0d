package queue

import "context"

// KeepCopies keeps copies with the embedded server, too, for tests of what is done
// with them.
func (q *Queue) KeepCopies() { q.copies = newCopies() }

// HealNow is Heal after a restart of Redis.
func (q *Queue) HealNow(ctx context.Context) error {
	q.heal.mu.Lock()
	q.heal.seen = "another"
	q.heal.mu.Unlock()
	return q.Heal(ctx)
}
