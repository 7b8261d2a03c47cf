"""Losses."""
import torch
import torch.nn.functional as F

from op_cases_kit import Ids, Numbers

ROWS = (4096, 512)
TARGET, PART = Numbers(ROWS, False, True), Numbers(ROWS, True, True)


def focal(x, target):
    """torchvision takes one-hot rows; making them is a part of the step."""
    from torchvision.ops import sigmoid_focal_loss
    return sigmoid_focal_loss(x, F.one_hot(target, 81)[:, :80].to(x.dtype), reduction="sum")


def giou(x, target):
    from torchvision.ops import generalized_box_iou_loss
    return generalized_box_iou_loss(x, target, reduction="sum")


def ctc(x, target, lengths):
    rows = torch.full((x.shape[0],), x.shape[1])
    return F.ctc_loss(x.transpose(0, 1), target, rows, lengths, blank=63)


CASES = [
    ("cross_entropy", "2048x208", F.cross_entropy, [(2048, 208), Ids(2048, 208)]),
    ("nll", "8192x256", F.nll_loss, [(8192, 256), Ids(8192, 256)]),
    ("bce", "4096x512", F.binary_cross_entropy, [Numbers(ROWS, True), PART]),
    ("bce_logits", "4096x512", F.binary_cross_entropy_with_logits, [ROWS, PART]),
    ("mse", "4096x512", F.mse_loss, [ROWS, TARGET]),
    ("smooth_l1", "4096x512", F.smooth_l1_loss, [ROWS, TARGET]),
    ("focal", "20000x80", focal, [(20000, 80), Ids(20000, 81)]),
    ("giou", "262144x4", giou, [Numbers((262144, 4), True), Numbers((262144, 4), True, True)]),
    ("kl_div", "4096x512", lambda x, t: F.kl_div(x, t, reduction="sum"), [ROWS, PART]),
    ("cosine_similarity", "4096x512", F.cosine_similarity, [ROWS] * 2),
    ("triplet_margin", "4096x512", F.triplet_margin_loss, [ROWS] * 3),
    ("ctc", "64x256x64, up to 50 labels", ctc, [(64, 256, 64), Ids((64, 50), 63), Ids(64, 50)]),
]
