package stream

import "slices"

// owes reports whether the client has yet to confirm the end of a job, or of a prompt that was told
// again from the history. The end comes, or came, on its present socket, or will on the next one.
func (l *line) owes(prompt, job string) bool {
	return slices.ContainsFunc(slices.Concat(l.running, l.waiting, l.sent), func(q *sequence) bool {
		return q.prompt == prompt && (q.job == job || q.job == "")
	})
}
