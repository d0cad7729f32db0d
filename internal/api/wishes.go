package api

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/comfyhub/comfyhub/internal/job"
)

// PriorityOf reads the wish for a priority: the header, else what the body says; anything
// odd counts as none.
func PriorityOf(r *http.Request, body string) int {
	n, err := strconv.Atoi(cmp.Or(r.Header.Get("X-ComfyHub-Priority"), body))
	if err != nil {
		return 0
	}
	return n
}

// BandOf reads the wish for a band: the header, else what the body says; anything odd
// counts as none.
func BandOf(r *http.Request, body string) job.Band {
	if band, ok := job.ParseBand(cmp.Or(r.Header.Get("X-ComfyHub-Band"), body)); ok {
		return band
	}
	return ""
}
