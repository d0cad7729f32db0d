package submit

import (
	"errors"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/refusal"
)

// refusalOf turns the errors of the core that whoever sends a prompt can do something about into a
// *[refusal.Refusal]. It returns any other as it is.
func refusalOf(err error) error {
	var r *refusal.Refusal
	var spent queue.SpentError
	var rate queue.RateError
	var uploads *files.FullError
	switch {
	case errors.As(err, &spent):
		r = refusal.TimeSpent(spent.Wait)
	case errors.As(err, &rate):
		r = refusal.Rate(rate.Wait)
	case errors.As(err, &uploads): // by the files inside the prompt
		r = refusal.Uploads(uploads.Limit)
	case errors.Is(err, ErrTenantStorage):
		r = refusal.TenantStorage()
	case errors.Is(err, queue.ErrTenantFullBytes): // is also an ErrTenantFull
		r = refusal.TenantQueue("queue_size")
	case errors.Is(err, queue.ErrTenantFull):
		r = refusal.TenantQueue("waiting")
	case errors.Is(err, queue.ErrTenantCallbacksFull), errors.Is(err, queue.ErrCallbacksFull):
		r = refusal.CallbacksFull()
	case errors.Is(err, queue.ErrFull):
		r = refusal.QueueFull()
	case errors.Is(err, ErrFetching):
		r = refusal.Fetching()
	case errors.Is(err, files.ErrStorage):
		r = refusal.Storage()
	default:
		return err
	}
	r.Cause = err
	return r
}
