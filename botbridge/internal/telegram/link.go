package telegram

import (
	"net/url"
	"strings"
)

// linkable reports whether Telegram takes an address under a button. It refuses the whole
// message for one that it does not take, such as http://localhost.
func linkable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.Contains(strings.Trim(u.Hostname(), "."), ".")
}
