package bridge

import (
	"context"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// judge asks the operator's service about results. A missing verdict is logged, because
// users see only the effect of what bot.yaml says for that case.
func (b *Bridge) judge(service *limits.Judge) request.Judge {
	return func(ctx context.Context, r request.Result) (request.Verdict, string, error) {
		v, failed, err := service.Judge(ctx, limits.Made{
			Name: r.Name, Size: r.Size, Words: r.Words, Command: r.Command, Read: r.Read,
		})
		if failed != nil {
			b.log.Warn("a result could not be checked", "verdict", v.Verdict, "error", failed)
		}
		return request.Verdict(v.Verdict), v.Reason, err
	}
}
