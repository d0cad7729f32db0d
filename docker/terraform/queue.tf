# Several hubs share a queue. It has no password, which would be in Terraform's state: only the hubs'
# group reaches it, over TLS.

locals {
  elasticache = var.queue == "elasticache" ? 1 : 0
}

resource "aws_security_group" "redis" {
  count       = local.elasticache
  name        = "comfyhub-redis"
  description = "The queue of the hub"
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_ingress_rule" "redis" {
  count                        = local.elasticache
  security_group_id            = aws_security_group.redis[0].id
  referenced_security_group_id = aws_security_group.hub.id
  ip_protocol                  = "tcp"
  from_port                    = 6379
  to_port                      = 6379
}

resource "aws_elasticache_subnet_group" "this" {
  count      = local.elasticache
  name       = "comfyhub"
  subnet_ids = var.private_subnet_ids
}

# The default, volatile-lru, deletes keys when memory is short.
resource "aws_elasticache_parameter_group" "this" {
  count  = local.elasticache
  name   = "comfyhub"
  family = "valkey8"

  parameter {
    name  = "maxmemory-policy"
    value = "noeviction"
  }
}

resource "aws_elasticache_replication_group" "this" {
  count                      = local.elasticache
  replication_group_id       = "comfyhub"
  description                = "The queue of the hub"
  engine                     = "valkey"
  engine_version             = "8.0"
  node_type                  = "cache.t4g.medium"
  num_cache_clusters         = 2
  automatic_failover_enabled = true
  multi_az_enabled           = true
  at_rest_encryption_enabled = true
  transit_encryption_enabled = true
  snapshot_retention_limit   = 7
  parameter_group_name       = aws_elasticache_parameter_group.this[0].name
  subnet_group_name          = aws_elasticache_subnet_group.this[0].name
  security_group_ids         = [aws_security_group.redis[0].id]
}
