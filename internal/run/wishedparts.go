package run

import (
	"bytes"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/split"
)

// worthParts is how long a whole run must take to be split unasked, and what making outputs apart must
// then save: each part has to be given out, and its files fetched.
const worthParts = 2 * time.Second

// partsWish is what a client wants of the division of its prompt.
type partsWish struct {
	// most bounds the instances that make it; 1 for a whole.
	most int
	// least is how long the whole must be known to take, and what making outputs apart must save; 0 if
	// parts were asked for, however little is known or saved.
	least time.Duration
}

// wishedParts reads extra_data.comfyhub.split: false for a whole, true for parts, or the number of
// instances. Anything else is no wish.
func wishedParts(extra []byte) partsWish {
	none := partsWish{most: split.MaxParts, least: worthParts}
	if !bytes.Contains(extra, []byte(`"split"`)) { // nearly all, and some hold a whole workflow
		return none
	}
	v, _ := pyjson.Parse(extra)
	o, _ := v.(*pyjson.Object)
	switch v, _ := o.Object("comfyhub").Get("split"); v := v.(type) {
	case pyjson.Bool:
		if !v {
			return partsWish{most: 1}
		}
		return partsWish{most: split.MaxParts}
	case pyjson.Number:
		if n, err := strconv.Atoi(string(v)); err == nil && n > 0 {
			return partsWish{most: min(n, split.MaxParts)}
		}
	}
	return none
}
