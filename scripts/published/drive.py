"""pysirix as it is published, synchronous and asynchronous, over everything it offers for JSON that is served."""
import asyncio
import sys
from datetime import datetime, timezone

import httpx
import pysirix
from pysirix import DBType, Insert, SirixServerError
from pysirix.constants import MetadataType

URL = sys.argv[1]
DOCUMENT = '{"fruit":[{"name":"apple","price":1.50},{"name":"pear","price":2}],"open":true,"none":null}'
# The keys of nodes never change; these are the ones of DOCUMENT, in its order.
ROOT, FRUIT, APPLE, NAME = 1, 2, 3, 4


def refused(status, what):
    try:
        what()
    except SirixServerError as error:
        assert str(status) in str(error), error
    except httpx.HTTPStatusError as error:
        assert error.response.status_code == status, error
    else:
        raise AssertionError(f"{status} is expected")


def sync(client):
    sirix = pysirix.sirix_sync("anna", "secret", client)
    sirix.delete_all()
    assert sirix.get_info() == []
    database = sirix.database("shop", DBType.JSON)
    refused(404, database.get_database_info)
    database.create()
    resource = database.resource("stock")
    assert resource.exists() is False
    refused(404, lambda: resource.read(None))
    assert resource.create(DOCUMENT) == DOCUMENT
    assert resource.exists() is True
    assert database.get_database_info()["resources"] == ["stock"]
    assert sirix.get_info() == [{"name": "shop", "type": "json", "resources": ["stock"]}]
    assert resource.read(None) == {"fruit": [{"name": "apple", "price": 1.5}, {"name": "pear", "price": 2}], "open": True, "none": None}
    assert resource.read(APPLE) == {"name": "apple", "price": 1.5}
    assert resource.read(None, max_level=1) == {}
    for kind in MetadataType:
        told = resource.read_with_metadata(FRUIT, meta_type=kind)
        assert told["metadata"]["nodeKey"] == FRUIT, (kind, told)
    refused(400, lambda: resource.read(99_999_999_999_999_999_999))
    refused(404, lambda: resource.read(9_999))

    # Changes, each under the tag of the node; one that is stale is 412.
    tag = resource.get_etag(FRUIT)
    resource.update(FRUIT, {"name": "fig", "price": 3}, etag=tag)
    refused(412, lambda: resource.update(FRUIT, "7", etag=tag))
    first = resource.read(FRUIT)
    assert [one["name"] for one in first] == ["fig", "apple", "pear"], first
    resource.update(APPLE, {"name": "plum"}, insert=Insert.RIGHT)
    resource.update(APPLE, '"left"', insert=Insert.LEFT)
    assert resource.read(FRUIT)[1] == "left" and resource.read(FRUIT)[3] == {"name": "plum"}
    resource.update(ROOT, {"new": [1, 2]})
    assert resource.read(None)["new"] == [1, 2]
    resource.update(NAME, '"Apple"', insert=Insert.REPLACE)
    assert resource.read(APPLE)["name"] == "Apple"
    refused(400, lambda: resource.update(FRUIT, "{not json"))
    resource.delete(APPLE, None)
    assert [type(one) for one in resource.read(FRUIT)] == [dict, str, dict, dict]

    # Every revision by its number and by its time, several in one envelope, the newest first in the history.
    history = resource.history()
    assert [one["revision"] for one in history] == [7, 6, 5, 4, 3, 2, 1], history
    assert history[0]["author"] == "anna" and "commitMessage" in history[0]
    assert resource.read(None, revision=1)["fruit"][0]["name"] == "apple"
    moment = datetime.fromisoformat(history[-1]["revisionTimestamp"].replace("Z", "+00:00"))
    assert resource.read(None, revision=moment)["fruit"][0]["name"] == "apple"
    assert resource.read(None, revision=datetime.now(timezone.utc)) == resource.read(None)
    both = resource.read(None, revision=(1, 2))["sirix"]
    assert [one["revisionNumber"] for one in both] == [1, 2], both
    refused(404, lambda: resource.read(None, revision=99))
    assert len(resource.read(FRUIT, top_level_limit=2)) == 2
    forth = resource.diff(1, 2)
    assert len(forth) == 1 and forth[0]["insert"]["data"], forth
    assert list(resource.diff(2, 1)[0]) == ["delete"]

    # Over an existing one: a revision more, and the history stays.
    resource.create("[]")
    assert resource.read(None) == [] and resource.history()[0]["revision"] == 8
    refused(501, lambda: sirix.query("1 + 1"))
    resource.delete(None, None)
    assert resource.exists() is False
    database.delete()
    refused(404, database.get_database_info)
    refused(501, sirix.database("x", DBType.XML).create)
    sirix._auth._refresh()
    assert sirix.get_info() == []
    sirix.dispose()


def records(client):
    """The store of records, which writes JSONiq."""
    sirix = pysirix.sirix_sync("anna", "secret", client)
    database = sirix.database("records", DBType.JSON)
    database.create()
    store = database.json_store("books")
    store.create()
    store.insert_one({"title": "it's", "price": 1.5, "tags": ["a", None]})
    store.insert_many([{"title": "two", "price": 2}, {"title": "three", "price": 2, "old": True}])
    found = store.find_all({"price": 2}, projection=["title"], hash=True)
    assert [one["title"] for one in found] == ["two", "three"] and set(found[0]) == {"title", "nodeKey", "hash"}, found
    assert [one["title"] for one in store.find_all({"tags": ["a", None]})] == ["it's"]
    assert store.find_one({}, node_key=False) == [{"title": "it's", "price": 1.5, "tags": ["a", None]}]
    key = found[0]["nodeKey"]
    before = datetime.fromisoformat(store.resource_history()[0]["revisionTimestamp"].replace("Z", "+00:00")).replace(tzinfo=None)
    assert store.find_by_key(key) == {"title": "two", "price": 2}
    store.update_by_key(key, {"price": 3, "new": {"deep": [1]}})
    store.update_by_key(key, {"price": 4, "nowhere": 1}, upsert=False)
    assert store.find_by_key(key) == {"title": "two", "price": 4, "new": {"deep": [1]}}
    store.update_many({"title": "three"}, {"price": 5})
    assert [one["price"] for one in store.find_all({})] == [1.5, 4, 5]
    store.delete_fields_by_key(key, ["new"])
    store.delete_field({"title": "three"}, ["old"])
    assert store.find_all({"title": "three"}, node_key=False) == [{"title": "three", "price": 5}]
    told = store.history(key)
    assert [one["revisionNumber"] for one in told] == [3, 4, 5, 7], told
    assert [one["price"] for one in store.history_embed(key)] == [2, 3, 4, 4]
    assert [one["revision"]["price"] for one in store.history(key, subtree=False)] == [2, 3, 4, 4]
    assert len(store.history(key, revision=3)) == 4
    shift = pysirix.TimeAxisShift
    then = store.find_all({"price": 2}, revision=3, node_key=False)
    assert [one["title"] for one in then] == ["two", "three"], then
    assert [one["price"] for one in store.find_all({"price": 2}, revision=before, time_axis_shift=shift.latest)] == [4, 5]
    assert [one["price"] for one in store.find_all({"price": 4}, time_axis_shift=shift.oldest)] == [2]
    store.delete_records({"price": 5})
    store.delete_records({"title": "it's"})
    assert [one["title"] for one in store.find_all({})] == ["two"]
    refused(501, lambda: sirix.query("for $x in (1, 2) return $x"))
    database.delete()
    sirix.dispose()


def arguments(client):
    """Every argument of the calls that no other part gives."""
    sirix = pysirix.sirix_sync("anna", "secret", client)
    database = sirix.database("args", DBType.JSON)
    database.create()
    resource = database.resource("list")
    for hash_type in ("ROLLING", "POSTORDER", "NONE"):
        assert resource.create({"n": [10, 11, 12, 13]}, hash_type=hash_type)
    assert {"name": "args", "type": "json"} in sirix.get_info(resources=False)
    times = [datetime.fromisoformat(one["revisionTimestamp"].replace("Z", "+00:00")) for one in reversed(resource.history())]
    several = resource.read(None, revision=(times[0], times[2]))["sirix"]
    assert several[-1]["revisionNumber"] == 3, several
    member = resource.read_with_metadata(None, meta_type=MetadataType.KEY)["value"][0]
    array, items = member["metadata"]["nodeKey"], [one["metadata"]["nodeKey"] for one in member["value"]]
    assert resource.read(array, top_level_limit=2, top_level_skip_last_node=items[1]) == [12, 13]
    resource.update(items[0], "9", insert=Insert.REPLACE)
    assert len(resource.diff(3, 4)) == 1
    assert len(resource.diff(3, 4, node_id=array, max_depth=2)) == 1
    assert resource.diff(3, 4, node_id=items[3]) == []
    assert len(resource.diff(times[2], datetime.now(timezone.utc))) == 1
    resource.delete(items[1], resource.get_etag(items[1]))
    assert resource.read(array) == [9, 12, 13]
    refused(412, lambda: resource.delete(items[2], '"0"'))
    database.delete()
    sirix.dispose()


async def asynchronous_arguments(client):
    sirix = await pysirix.sirix_async("anna", "secret", client)
    database = sirix.database("again", DBType.JSON)
    await database.create()
    resource = database.resource("list")
    assert await resource.exists() is False
    await resource.create([1, [2]], hash_type="NONE")
    assert await resource.exists() is True
    assert (await database.get_database_info())["resources"] == ["list"]
    assert {"name": "again", "type": "json", "resources": ["list"]} in await sirix.get_info()
    assert (await resource.read_with_metadata(1))["metadata"]["nodeKey"] == 1
    await resource.update(1, "0", etag=await resource.get_etag(1))
    assert await resource.read(None, revision=1) == [1, [2]]
    assert len(await resource.diff(1, 2)) == 1
    await resource.delete(2, await resource.get_etag(2))
    assert await resource.read(None) == [0, [2]]
    await resource.delete(None, None)
    assert await resource.exists() is False
    await sirix.delete_all()
    assert await sirix.get_info() == []
    sirix.dispose()


async def both(client):
    sirix = await pysirix.sirix_async("anna", "secret", client)
    database = sirix.database("async", DBType.JSON)
    await database.create()
    stores = [database.resource(f"r{number}") for number in range(8)]
    await asyncio.gather(*[store.create(f"[{number}]") for number, store in enumerate(stores)])
    read = await asyncio.gather(*[store.read(None) for store in stores])
    assert read == [[number] for number in range(8)], read
    await stores[0].update(1, "1")
    assert await stores[0].read(None) == [1, 0]
    assert len(await stores[0].history()) == 2
    store = database.json_store("store")
    await store.create()
    assert await store.exists() and len(await store.resource_history()) == 1
    await store.insert_one({"a": 1})
    assert (await store.find_one({"a": 1}, node_key=False)) == [{"a": 1}]
    await database.delete()
    sirix.dispose()


async def asynchronous():
    async with httpx.AsyncClient(base_url=URL) as client:
        await both(client)
        await asynchronous_arguments(client)


with httpx.Client(base_url=URL) as client:
    sync(client)
    records(client)
    arguments(client)
asyncio.run(asynchronous())
print("pysirix: done")
