package retry

import (
	"strings"
	"time"
)

// sayEvery is how often a trouble that lasts is news.
const sayEvery = time.Minute

// Trouble is what keeps a loop from going on: a line in the log for each attempt would bury all
// others. The zero value is ready to use, by one goroutine at a time.
type Trouble struct {
	says  string
	until time.Time
}

// IsNews reports whether an error is to be logged: it is another one than the last, apart from its
// numbers (the next connection has another port), or that was a minute ago.
func (t *Trouble) IsNews(err error) bool {
	says, now := "", time.Now()
	if err != nil {
		says = strings.Map(withoutDigits, err.Error())
	}
	if says == t.says && now.Before(t.until) {
		return false
	}
	*t = Trouble{says, now.Add(sayEvery)}
	return true
}

func withoutDigits(r rune) rune {
	if r >= '0' && r <= '9' {
		return -1
	}
	return r
}
