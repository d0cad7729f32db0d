package egress

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Signed returns the header of a JSON body that is posted, signed with each of the keys as Standard
// Webhooks have it. The id tells what is said; it stays the same when it is said again.
func Signed(keys [][]byte, id string, body []byte, now time.Time) (http.Header, error) {
	signatures := make([]string, len(keys))
	for n, key := range keys {
		hook, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, err
		}
		if signatures[n], err = hook.Sign(id, now, body); err != nil {
			return nil, err
		}
	}
	header := http.Header{}
	header.Set("Content-Type", "application/json")
	header.Set(standardwebhooks.HeaderWebhookID, id)
	header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	header.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return header, nil
}
