package config

import (
	"slices"
	"time"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/overflow"
	"github.com/comfyhub/comfyhub/internal/schedule"
)

const (
	// DefaultOverflowAfter is the After of an endpoint that does not say otherwise.
	DefaultOverflowAfter = 30 * time.Second
	// DefaultOverflowTimeout is its Timeout.
	DefaultOverflowTimeout = overflow.DefaultTimeout
	// ShortestOverflow is the least Timeout: RunPod takes none of five seconds.
	ShortestOverflow = 6 * time.Second
)

// Overflow is a serverless endpoint: jobs go there for which the fleet has no time.
type Overflow struct {
	// Name tells it from others.
	Name string
	// RunPod is the id of an endpoint of RunPod; else URL is that of a service of the contract.
	RunPod, URL string
	// Key is the one for the endpoint.
	Key string
	// After is the wait beyond which jobs go there.
	After time.Duration
	// Price is what a second costs, and Budget what a day may cost; 0 for unknown, and for no limit.
	Price, Budget float64
	// Max is how many runs there are at one time, of all hubs.
	Max int
	// Timeout bounds a run once it has begun.
	Timeout time.Duration
	// Only are the node classes that a job may have; each * in one stands for any text. Default: all.
	Only []string
	// Inputs and Secrets say that input files, and API keys of prompts, may go there.
	Inputs, Secrets bool
	// ObjectInfo describes its node classes, as GET /object_info does. Default: as the fleet has them.
	ObjectInfo []byte
	// FilesFrom are the hosts from which files of runs are fetched that are links.
	FilesFrom egress.Hosts
	// API is RunPod's, and Egress leads there; both are for tests.
	API    string
	Egress egress.Options
}

// Check says what is wrong with the endpoint's address.
func (o Overflow) Check() error {
	_, err := o.Remote()
	return err
}

// Remote returns what calls the endpoint.
func (o Overflow) Remote() (overflow.Remote, error) {
	if o.RunPod != "" {
		return overflow.NewRunPod(o.RunPod, o.Key, o.API, o.Egress)
	}
	return overflow.NewService(o.URL, o.Key, o.Egress)
}

// Allows reports whether a job of these node classes may go there.
func (o Overflow) Allows(classes []string) bool {
	if len(o.Only) == 0 {
		return true
	}
	for _, class := range classes {
		if !slices.ContainsFunc(o.Only, func(pattern string) bool { return schedule.Matches(pattern, class) }) {
			return false
		}
	}
	return true
}
